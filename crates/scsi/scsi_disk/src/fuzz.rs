//! Entry for fuzz targets: durable rows with any content.

/// Decodes `data` as every durable row; what decodes must encode to the same bytes.
pub fn fuzz_state_rows(data: &[u8]) {
    if let Some(state) = crate::reservations::Reservations::decode(data) {
        let again = crate::reservations::Reservations::decode(&state.encode());
        debug_assert!(again.is_some());
    }
    let _ = crate::mode::Mode::decode(data);
    let _ = crate::sanitize::Sanitize::decode(data);
    let losses = crate::losses::Losses::decode(data);
    let again = losses.as_ref().and_then(crate::losses::Losses::row);
    debug_assert!(losses.is_none_or(|losses| losses.0.is_empty()
        || again.as_ref().and_then(|row| crate::losses::Losses::decode(row)) == Some(losses)));
}
