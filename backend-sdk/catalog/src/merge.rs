//! One list out of many.

/// Merges lists by price: at each step the cheapest of the first elements left, of equal ones that of the earlier list. Each
/// list keeps its own order, even where it is not sorted.
pub(crate) fn by_price<T>(lists: Vec<Vec<T>>, price: impl Fn(&T) -> f64) -> Vec<T> {
    let mut merged = Vec::with_capacity(lists.iter().map(Vec::len).sum());
    let mut rest: Vec<_> = lists
        .into_iter()
        .map(|list| list.into_iter().peekable())
        .collect();
    loop {
        let heads = rest.iter_mut().enumerate();
        let cheapest = heads
            .filter_map(|(at, list)| list.peek().map(|head| (price(head), at)))
            .min_by(|a, b| a.0.total_cmp(&b.0).then(a.1.cmp(&b.1)));
        let next = cheapest
            .and_then(|(_, at)| rest.get_mut(at))
            .and_then(Iterator::next);
        match next {
            Some(next) => merged.push(next),
            None => return merged,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::by_price;

    #[test]
    fn an_unsorted_list_keeps_its_order() {
        let price = |number: &f64| *number;
        assert_eq!(
            by_price(vec![vec![1.0, 3.0], vec![2.0, 1.0]], price),
            [1.0, 2.0, 1.0, 3.0]
        );
        let lists = vec![vec![(1.0, 'a'), (2.0, 'a')], vec![], vec![(1.0, 'b')]];
        let names: Vec<char> = by_price(lists, |(price, _)| *price)
            .into_iter()
            .map(|(_, name)| name)
            .collect();
        assert_eq!(names, ['a', 'b', 'a']);
    }
}
