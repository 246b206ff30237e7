//! Where attempts stand in a timeline: those that overlap one below the other, in as few rows as there are at once.

/// Gives each span `(start, end)` a row, in the order given; spans that overlap never share one. Also the number of rows.
pub fn rows(spans: &[(i64, i64)]) -> (Vec<usize>, usize) {
    let mut order: Vec<usize> = (0..spans.len()).collect();
    order.sort_by_key(|&i| (spans[i], i));
    let mut ends: Vec<i64> = Vec::new();
    let mut row_of = vec![0; spans.len()];
    for i in order {
        let (start, end) = spans[i];
        let row = ends.iter().position(|&free| free <= start).unwrap_or_else(|| {
            ends.push(i64::MIN);
            ends.len() - 1
        });
        ends[row] = end.max(start);
        row_of[i] = row;
    }
    (row_of, ends.len())
}

#[cfg(test)]
mod tests {
    use super::rows;
    use proptest::prelude::*;

    #[test]
    fn what_follows_shares_a_row_and_what_overlaps_does_not() {
        assert_eq!(rows(&[(0, 10), (10, 20), (5, 15)]), (vec![0, 0, 1], 2));
        assert_eq!(rows(&[]), (vec![], 0));
    }

    proptest! {
        #[test]
        fn no_two_of_a_row_overlap(raw in proptest::collection::vec((0_i64..100, 0_i64..30), 0..60)) {
            let spans: Vec<_> = raw.into_iter().map(|(start, length)| (start, start + length)).collect();
            let (row, count) = rows(&spans);
            let most = (0..130).map(|t| spans.iter().filter(|(s, e)| *s <= t && t < *e).count()).max().unwrap_or(0);
            prop_assert!(count <= most.max(usize::from(!spans.is_empty())) + spans.iter().filter(|(s, e)| s == e).count());
            for a in 0..spans.len() {
                for b in 0..a {
                    if row[a] == row[b] {
                        let ((s1, e1), (s2, e2)) = (spans[a], spans[b]);
                        prop_assert!(e1 <= s2 || e2 <= s1);
                    }
                }
            }
        }
    }
}
