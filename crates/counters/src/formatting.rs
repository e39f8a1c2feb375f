//! Numbers as people read them: `12,345` and `3.2 MB`.

/// Writes a number of bytes in the unit that leaves one to three digits before the point.
pub fn rough_size(bytes: f64) -> String {
    let units = ["B", "KB", "MB", "GB", "TB"];
    // (A sum of nothing is -0.)
    let mut value = bytes + 0.0;
    let mut unit = 0;
    while value >= 1000.0 && unit + 1 < units.len() {
        value /= 1024.0;
        unit += 1;
    }
    if unit == 0 || value >= 100.0 {
        format!("{value:.0} {}", units[unit])
    } else {
        format!("{value:.1} {}", units[unit])
    }
}

/// Writes a whole number with commas between the thousands.
pub fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::with_capacity(digits.len() + digits.len() / 3);
    for (i, digit) in digits.chars().enumerate() {
        if i > 0 && (digits.len() - i).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rough_sizes_and_groups_are_readable() {
        assert_eq!(rough_size(512.0), "512 B");
        assert_eq!(rough_size([0.0; 0].iter().sum()), "0 B");
        assert_eq!(rough_size(6.0 * 1024.0 * 1024.0), "6.0 MB");
        assert_eq!(grouped(1_234_567), "1,234,567");
        assert_eq!(grouped(999), "999");
    }
}
