//! Figures with the bars they must meet.

/// Collects figures and prints them as a table.
#[derive(Debug, Default)]
pub struct Report {
    lines: Vec<Line>,
}

#[derive(Debug)]
struct Line {
    name: String,
    figure: String,
    bar: String,
    met: bool,
    detail: String,
}

impl Report {
    /// A figure that must be at least the bar.
    pub fn at_least(&mut self, name: impl Into<String>, figure: f64, bar: f64, detail: impl Into<String>) {
        self.push(name.into(), figure, format!(">= {bar}"), figure >= bar, detail.into());
    }

    /// A figure that must be at most the bar.
    pub fn at_most(&mut self, name: impl Into<String>, figure: f64, bar: f64, detail: impl Into<String>) {
        self.push(name.into(), figure, format!("<= {bar}"), figure <= bar, detail.into());
    }

    fn push(&mut self, name: String, figure: f64, bar: String, met: bool, detail: String) {
        let figure = if figure.abs() >= 1000.0 { format!("{figure:.0}") } else { format!("{figure:.2}") };
        eprintln!("{name}: {figure} ({bar}) {detail}");
        self.lines.push(Line { name, figure, bar, met, detail });
    }

    pub fn print(&self) {
        println!("| figure | measured | bar | met | detail |");
        println!("|---|---|---|---|---|");
        for Line { name, figure, bar, met, detail } in &self.lines {
            println!("| {name} | {figure} | {bar} | {} | {detail} |", if *met { "yes" } else { "no" });
        }
    }

    pub fn all_met(&self) -> bool {
        self.lines.iter().all(|line| line.met)
    }
}

/// The middle value; the mean of the two middle ones when their number is even.
pub fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    match values.len() {
        0 => f64::NAN,
        count if count % 2 == 1 => values[count / 2],
        count => f64::midpoint(values[count / 2 - 1], values[count / 2]),
    }
}
