//! Line plots as SVG: axes, legend, and spreads as bars from the smallest to the largest value.
//!
//! Colours are classes of [`STYLE`], so that a page can show the same picture light and dark.

mod scale;

use std::fmt::Write;

use scale::Range;
pub use scale::{Scale, Unit, short};

/// Colours, lines and text; in a page once, in a file of its own as `standalone` puts it.
pub const STYLE: &str = include_str!("plot.css");

const WIDTH: f64 = 440.0;
const PLOT_HEIGHT: f64 = 208.0;
const LEFT: f64 = 50.0;
const RIGHT: f64 = 14.0;
const BOTTOM: f64 = 42.0;
const TITLE: f64 = 34.0;
const LEGEND_LINE: f64 = 17.0;
/// Width of `text` as large as the legend's, about.
fn width(text: &str) -> f64 {
    let wide = |c: char| c.is_uppercase() || "_%@".contains(c);
    text.chars().map(|c| if wide(c) { 8.0 } else { 6.0 }).sum()
}

/// An axis.
#[derive(Clone, Debug)]
pub struct Axis {
    /// The name of what it shows.
    pub label: &'static str,
    /// How it is spread.
    pub scale: Scale,
    /// How its numbers are written.
    pub unit: Unit,
}

/// How a series is drawn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stroke {
    /// A line with markers.
    Solid,
    /// A dashed line, for what is computed or a bound.
    Dashed,
    /// Markers alone.
    Dots,
}

/// A series.
#[derive(Clone, Debug)]
pub struct Line {
    /// Its name in the legend.
    pub name: String,
    /// Which of the seven colours and markers; 0 is grey.
    pub color: usize,
    /// How it is drawn.
    pub stroke: Stroke,
    /// Its points, in the order of x.
    pub points: Vec<Point>,
}

/// A value.
#[derive(Clone, Debug)]
pub struct Point {
    /// Where.
    pub x: f64,
    /// The median.
    pub y: f64,
    /// Smallest and largest.
    pub spread: [f64; 2],
    /// The text that a pointer over it shows.
    pub note: String,
}

/// A line across the plot.
#[derive(Clone, Debug)]
pub struct Rule {
    /// At this value of y, or of x.
    pub at: At,
    /// Written beside it.
    pub text: &'static str,
}

/// Where a rule is.
#[derive(Clone, Copy, Debug)]
pub enum At {
    /// Across.
    Y(f64),
    /// Upright.
    X(f64),
}

/// A picture.
#[derive(Clone, Debug)]
pub struct Plot {
    /// Its name, also that of its file.
    pub name: String,
    /// Its headline.
    pub title: String,
    /// The x axis.
    pub x: Axis,
    /// The y axis.
    pub y: Axis,
    /// Series.
    pub lines: Vec<Line>,
    /// Lines across.
    pub rules: Vec<Rule>,
}

/// Text as it must stand in markup.
pub fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

impl Plot {
    /// The picture, to stand in a page that has [`STYLE`].
    pub fn svg(&self) -> String {
        let (legend, legend_height) = self.legend();
        let top = TITLE + legend_height;
        let height = top + PLOT_HEIGHT + BOTTOM;
        let points = || self.lines.iter().flat_map(|l| &l.points);
        let rule_at = |f: fn(At) -> Option<f64>| self.rules.iter().filter_map(move |r| f(r.at));
        let x = Range::over(
            self.x.scale,
            points()
                .map(|p| p.x)
                .chain(rule_at(|at| if let At::X(v) = at { Some(v) } else { None })),
        );
        let y = Range::over(
            self.y.scale,
            points()
                .flat_map(|p| [p.y, p.spread[0], p.spread[1]])
                .chain(rule_at(|at| if let At::Y(v) = at { Some(v) } else { None })),
        );
        let area = Area { x, y, top };
        let mut svg = format!(
            "<svg class=\"plot\" viewBox=\"0 0 {WIDTH} {height}\" role=\"img\" \
             xmlns=\"http://www.w3.org/2000/svg\"><title>{0}</title>\
             <text class=\"title\" x=\"4\" y=\"16\">{0}</text>{legend}",
            escape(&self.title)
        );
        self.axes(&area, &mut svg);
        self.rules(&area, &mut svg);
        for line in &self.lines {
            area.line(line, &mut svg);
        }
        svg += "</svg>";
        svg
    }

    /// The picture as a file of its own.
    pub fn standalone(&self) -> String {
        let svg = self.svg();
        let end = svg.find('>').map_or(0, |i| i + 1);
        format!("{}<style>{STYLE}</style>{}\n", &svg[..end], &svg[end..])
    }

    /// Entries in as many lines as they need, and the height of these.
    fn legend(&self) -> (String, f64) {
        let (mut svg, mut x, mut y) = (String::new(), 4.0, TITLE);
        for line in &self.lines {
            let width = 28.0 + width(&line.name) + 14.0;
            if x > 4.0 && x + width > WIDTH {
                x = 4.0;
                y += LEGEND_LINE;
            }
            let _ = write!(svg, "<g class=\"c{}\">", line.color);
            if line.stroke != Stroke::Dots {
                let class = if line.stroke == Stroke::Dashed { "line dashed" } else { "line" };
                let (end, mid) = (x + 22.0, y - 4.0);
                let _ = write!(svg, "<path class=\"{class}\" d=\"M{x:.1} {mid:.1}H{end:.1}\"/>");
            }
            svg += &marker(line.color, x + 11.0, y - 4.0);
            let _ = write!(
                svg,
                "</g><text x=\"{:.1}\" y=\"{y:.1}\">{}</text>",
                x + 28.0,
                escape(&line.name)
            );
            x += width;
        }
        // Below it, the y axis is named.
        (svg, y - TITLE + 28.0)
    }

    fn axes(&self, area: &Area, svg: &mut String) {
        let (right, bottom) = (WIDTH - RIGHT, area.top + PLOT_HEIGHT);
        for tick in area.y.ticks(5) {
            let y = area.y_of(tick);
            let label = self.y.unit.text(tick);
            let _ = write!(
                svg,
                "<path class=\"grid\" d=\"M{LEFT} {y:.1}H{right}\"/>\
                 <text class=\"end\" x=\"{:.1}\" y=\"{:.1}\">{label}</text>",
                LEFT - 6.0,
                y + 4.0
            );
        }
        for tick in self.x_ticks(area) {
            let x = area.x_of(tick);
            let label = self.x.unit.text(tick);
            let _ = write!(
                svg,
                "<path class=\"tick\" d=\"M{x:.1} {bottom}v4\"/>\
                 <text class=\"middle\" x=\"{x:.1}\" y=\"{:.1}\">{label}</text>",
                bottom + 16.0
            );
        }
        let _ = write!(
            svg,
            "<path class=\"tick\" d=\"M{LEFT} {bottom}H{right}\"/>\
             <text class=\"middle label\" x=\"{:.1}\" y=\"{:.1}\">{}</text>\
             <text class=\"label\" x=\"{LEFT}\" y=\"{:.1}\">{}</text>",
            f64::midpoint(LEFT, right),
            bottom + 34.0,
            escape(self.x.label),
            area.top - 8.0,
            escape(self.y.label)
        );
    }

    /// Where the x values are few and their labels fit, they are the ticks themselves.
    fn x_ticks(&self, area: &Area) -> Vec<f64> {
        let mut own: Vec<f64> = self.lines.iter().flat_map(|l| &l.points).map(|p| p.x).collect();
        own.sort_by(f64::total_cmp);
        own.dedup();
        let half = |value: f64| width(&self.x.unit.text(value)) / 2.0;
        let apart = own
            .windows(2)
            .all(|w| area.x_of(w[1]) - area.x_of(w[0]) > half(w[0]) + half(w[1]) + 6.0);
        if own.len() <= 9 && apart { own } else { area.x.ticks(7) }
    }

    fn rules(&self, area: &Area, svg: &mut String) {
        let (right, bottom) = (WIDTH - RIGHT, area.top + PLOT_HEIGHT);
        for rule in &self.rules {
            let text = escape(rule.text);
            let _ = match rule.at {
                At::Y(value) => {
                    let y = area.y_of(value);
                    write!(
                        svg,
                        "<path class=\"rule\" d=\"M{LEFT} {y:.1}H{right}\"/>\
                         <text class=\"end note\" x=\"{:.1}\" y=\"{:.1}\">{text}</text>",
                        right - 2.0,
                        y - 4.0
                    )
                }
                At::X(value) => {
                    let x = area.x_of(value);
                    write!(
                        svg,
                        "<path class=\"rule\" d=\"M{x:.1} {}V{bottom}\"/>\
                         <text class=\"note\" x=\"{:.1}\" y=\"{:.1}\">{text}</text>",
                        area.top,
                        x + 4.0,
                        area.top + 10.0
                    )
                }
            };
        }
    }
}

/// Where the plot itself is.
struct Area {
    x: Range,
    y: Range,
    top: f64,
}

impl Area {
    fn x_of(&self, value: f64) -> f64 {
        // A margin, so that markers at the ends are whole.
        LEFT + 8.0 + self.x.place(value) * (WIDTH - LEFT - RIGHT - 16.0)
    }

    fn y_of(&self, value: f64) -> f64 {
        self.top + (1.0 - self.y.place(value)) * PLOT_HEIGHT
    }

    fn line(&self, line: &Line, svg: &mut String) {
        let _ = write!(svg, "<g class=\"c{}\">", line.color);
        if line.stroke != Stroke::Dots {
            let class = if line.stroke == Stroke::Dashed { "line dashed" } else { "line" };
            let path: Vec<String> = line
                .points
                .iter()
                .map(|p| format!("{:.1} {:.1}", self.x_of(p.x), self.y_of(p.y)))
                .collect();
            let _ = write!(svg, "<path class=\"{class}\" d=\"M{}\"/>", path.join("L"));
        }
        for p in &line.points {
            let (x, y) = (self.x_of(p.x), self.y_of(p.y));
            let [low, high] = p.spread.map(|v| self.y_of(v));
            if low - high > 1.0 {
                let _ = write!(
                    svg,
                    "<path class=\"spread\" d=\"M{x:.1} {low:.1}V{high:.1}M{0:.1} {low:.1}h6\
                     M{0:.1} {high:.1}h6\"/>",
                    x - 3.0
                );
            }
            let _ = write!(
                svg,
                "<g>{}<title>{}</title></g>",
                marker(line.color, x, y),
                escape(&p.note)
            );
        }
        *svg += "</g>";
    }
}

/// Each colour has a shape too.
fn marker(color: usize, x: f64, y: f64) -> String {
    match color % 4 {
        0 => format!("<circle class=\"mark\" cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"3.2\"/>"),
        1 => format!("<path class=\"mark\" d=\"M{:.1} {:.1}h6v6h-6z\"/>", x - 3.0, y - 3.0),
        2 => format!("<path class=\"mark\" d=\"M{x:.1} {:.1}l3.8 6.6h-7.6z\"/>", y - 4.2),
        _ => format!("<path class=\"mark\" d=\"M{x:.1} {:.1}l4 4l-4 4l-4-4z\"/>", y - 4.0),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plot() -> Plot {
        let point = |x: f64, y: f64| Point { x, y, spread: [y * 0.9, y * 1.2], note: "a<b".into() };
        let line = |name: &str, color, stroke| Line {
            name: name.into(),
            color,
            stroke,
            points: vec![point(1.0, 10.0), point(4.0, 20.0)],
        };
        Plot {
            name: "test".into(),
            title: "A & B".into(),
            x: Axis { label: "copies", scale: Scale::Linear, unit: Unit::Number },
            y: Axis { label: "messages/s", scale: Scale::Linear, unit: Unit::Number },
            lines: vec![
                line("plain", 0, Stroke::Solid),
                line("uncopy", 1, Stroke::Dots),
                line(&"long ".repeat(12), 2, Stroke::Dashed),
            ],
            rules: vec![Rule { at: At::Y(15.0), text: "bound" }],
        }
    }

    #[test]
    fn a_picture_has_every_point_within_its_frame() {
        let svg = plot().svg();
        assert_eq!(svg.matches("class=\"spread\"").count(), 6);
        // One for each point, one for each entry of the legend.
        assert_eq!(svg.matches("class=\"mark\"").count(), 9);
        assert!(svg.contains("A &amp; B") && svg.contains("a&lt;b") && !svg.contains("NaN"));
        let height: f64 = {
            let frame = svg.split("viewBox=\"0 0 440 ").nth(1).unwrap();
            frame.split('"').next().unwrap().parse().unwrap()
        };
        for circle in svg.split("cy=\"").skip(1) {
            let y: f64 = circle.split('"').next().unwrap().parse().unwrap();
            assert!((0.0..=height).contains(&y));
        }
    }

    #[test]
    fn a_long_legend_takes_another_line_and_a_file_has_its_style() {
        let mut short = plot();
        short.lines.truncate(2);
        assert!(plot().legend().1 > short.legend().1);
        let file = plot().standalone();
        assert!(file.starts_with("<svg") && file.contains("<style>") && file.ends_with("</svg>\n"));
    }
}
