//! Columns that line up.

use crate::output::{Output, Paint};

/// A table for people; the last column is as wide as its text.
#[derive(Debug)]
pub(crate) struct Table {
    columns: &'static [Column],
    widths: Vec<usize>,
}

#[derive(Debug)]
pub(crate) struct Column {
    pub(crate) name: &'static str,
    /// Width before anything is known about the rows.
    pub(crate) width: usize,
    pub(crate) right: bool,
}

/// A column whose text starts at its left edge.
pub(crate) const fn left(name: &'static str, width: usize) -> Column {
    Column { name, width, right: false }
}

/// A column of numbers.
pub(crate) const fn right(name: &'static str, width: usize) -> Column {
    Column { name, width, right: true }
}

/// One cell: its text, and the colour it is shown in.
#[derive(Clone, Debug)]
pub(crate) struct Cell {
    text: String,
    paint: Option<Paint>,
}

impl Cell {
    pub(crate) fn painted(paint: Paint, text: impl Into<String>) -> Cell {
        Cell { text: text.into(), paint: Some(paint) }
    }
}

impl<T: Into<String>> From<T> for Cell {
    fn from(text: T) -> Self {
        Cell { text: text.into(), paint: None }
    }
}

impl Table {
    /// A table whose rows come one by one: the columns keep their starting width, longer texts push the line.
    pub(crate) fn new(columns: &'static [Column]) -> Table {
        let widths = columns.iter().map(|column| column.width.max(column.name.chars().count())).collect();
        Table { columns, widths }
    }

    /// A table whose rows are all known.
    pub(crate) fn fitted(columns: &'static [Column], rows: &[Vec<Cell>]) -> Table {
        let mut table = Table::new(columns);
        for row in rows {
            for (width, cell) in table.widths.iter_mut().zip(row) {
                *width = (*width).max(cell.text.chars().count());
            }
        }
        table
    }

    pub(crate) fn header(&self, output: &Output) -> String {
        let cells = self.columns.iter().map(|column| Cell::painted(Paint::Faint, column.name)).collect::<Vec<_>>();
        self.row(output, &cells)
    }

    pub(crate) fn row(&self, output: &Output, cells: &[Cell]) -> String {
        let mut line = String::new();
        for (at, (column, cell)) in self.columns.iter().zip(cells).enumerate() {
            let last = at + 1 == self.columns.len();
            let gap = self.widths[at].saturating_sub(cell.text.chars().count());
            let shown = match cell.paint {
                Some(paint) if !cell.text.is_empty() => output.paint(paint, &cell.text),
                _ => cell.text.clone(),
            };
            if column.right {
                line.extend(std::iter::repeat_n(' ', gap));
                line.push_str(&shown);
            } else {
                line.push_str(&shown);
                if !last {
                    line.extend(std::iter::repeat_n(' ', gap));
                }
            }
            if !last {
                line.push_str("  ");
            }
        }
        line.trim_end().to_owned()
    }
}
