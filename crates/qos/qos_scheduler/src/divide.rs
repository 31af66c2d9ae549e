//! A limit or minimum that holds for several places together, divided among them by demand.

/// Part of a total that is kept for places without demand, so that one that begins is not at a standstill until the next
/// division: a sixteenth, evenly.
const KEPT: u64 = 16;

/// Divides `total` among places by their demands (amounts that each could use in the same unit). The parts add up to exactly
/// `total`, or to at least 1 for each place if `total` is smaller than their number, for a limit of nothing would be none.
///
/// It is max-min fair: who asks for less than an even part gets what it asks for, the others share the rest evenly; what
/// nobody asks for is given to all evenly, so that demand can grow.
#[must_use]
pub fn divide(total: u64, demands: &[u64]) -> Vec<u64> {
    let places = demands.len() as u64;
    if places == 0 {
        return Vec::new();
    }
    if total <= places {
        return vec![1; demands.len()];
    }
    let floor = (total / KEPT / places).max(1);
    let mut parts = vec![floor; demands.len()];
    let mut left = total - floor * places;
    // From the smallest demand up: each gets its demand, or an even part of what is left for it and those after it.
    let mut order: Vec<usize> = (0..demands.len()).collect();
    order.sort_by_key(|place| demands[*place]);
    for (done, place) in order.iter().enumerate() {
        let even = left / (places - done as u64);
        let given = demands[*place].saturating_sub(floor).min(even);
        parts[*place] += given;
        left -= given;
    }
    let even = left / places;
    let mut odd = left % places;
    for place in order.iter().rev() {
        parts[*place] += even + u64::from(odd > 0);
        odd = odd.saturating_sub(1);
    }
    parts
}
