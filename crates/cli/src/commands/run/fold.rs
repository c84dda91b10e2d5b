//! A long list on one screen: what is all alike is counted, and what tells something stays.

/// Rows of a screen that are left for steps.
const ROWS_MAX: usize = 20;

/// Rows that are alike, one after the other, before they are folded: the first and the last of them stay.
const ALIKE_MAX: usize = 3;

/// A row of what there is, or so many that are not shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Row<T> {
    Whole(T),
    Folded(usize),
}

/// Folds a list that is too long. `is_alike` tells of two neighbours whether seeing one is seeing both.
pub(super) fn fold<T>(items: Vec<T>, is_alike: impl Fn(&T, &T) -> bool) -> Vec<Row<T>> {
    if items.len() <= ROWS_MAX {
        return items.into_iter().map(Row::Whole).collect();
    }
    let lengths: Vec<usize> = items.chunk_by(is_alike).map(<[T]>::len).collect();
    let mut items = items.into_iter();
    let mut rows = Vec::new();
    for length in lengths {
        if length <= ALIKE_MAX {
            rows.extend(items.by_ref().take(length).map(Row::Whole));
            continue;
        }
        rows.extend(items.next().map(Row::Whole));
        let folded = length - 2;
        items.nth(folded - 1);
        rows.push(Row::Folded(folded));
        rows.extend(items.next().map(Row::Whole));
    }
    shorten(rows)
}

/// Leaves the middle out of what is too long even so.
fn shorten<T>(mut rows: Vec<Row<T>>) -> Vec<Row<T>> {
    if rows.len() <= ROWS_MAX {
        return rows;
    }
    let half = ROWS_MAX / 2;
    let middle = half..rows.len() - half;
    let count = rows[middle.clone()].iter().map(|row| if let Row::Folded(count) = row { *count } else { 1 }).sum();
    rows.splice(middle, [Row::Folded(count)]);
    rows
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Shown as it looks: letters, and how many are folded between them.
    fn folded(text: &str) -> String {
        let rows = fold(text.chars().collect(), |one, other| one == other && one.is_lowercase());
        rows.into_iter()
            .map(|row| match row {
                Row::Whole(letter) => letter.to_string(),
                Row::Folded(count) => format!("({count})"),
            })
            .collect()
    }

    #[test]
    fn a_list_that_fits_stays_as_it_is() {
        let text = "a".repeat(ROWS_MAX);
        assert_eq!(folded(&text), text);
        assert_eq!(folded(""), "");
    }

    #[test]
    fn neighbours_that_are_alike_are_counted_and_the_others_stay() {
        let text = format!("{}FaaaF{}", "a".repeat(30), "n".repeat(200));
        assert_eq!(folded(&text), "a(28)aFaaaFn(198)n");
        assert_eq!(folded(&"a".repeat(256)), "a(254)a");
    }

    #[test]
    fn what_is_too_long_even_so_loses_its_middle_and_no_count() {
        let text = "F".repeat(100);
        assert_eq!(folded(&text), format!("{0}(80){0}", "F".repeat(10)));
        let text = format!("{}{}{}", "F".repeat(15), "a".repeat(50), "F".repeat(15));
        assert_eq!(folded(&text), format!("{0}(60){0}", "F".repeat(10)));
    }
}
