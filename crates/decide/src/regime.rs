//! Who decides which call sites elide.

/// Who decides which call sites elide.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(u32)]
pub enum Regime {
    /// Each site's own account.
    #[default]
    Accounts,
    /// All elide, whatever their accounts say.
    All,
    /// None does.
    None,
}

/// All of them, in the order of their words.
pub(crate) const REGIMES: [Regime; 3] = [Regime::Accounts, Regime::All, Regime::None];

impl Regime {
    /// What `word` stands for: `regime as u32`.
    #[inline]
    pub fn from_word(word: u32) -> Self {
        match word {
            0 => Self::Accounts,
            1 => Self::All,
            _ => Self::None,
        }
    }
}
