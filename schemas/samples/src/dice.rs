//! Repeatable random numbers, and random damage to bytes.

/// Returns a function that rolls a number from 0 to below the number of `sides`, from a small seeded
/// generator (SplitMix64).
pub fn dice(seed: u64) -> impl FnMut(usize) -> usize {
    let mut state = seed;
    move |sides| {
        state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (state ^ (state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        usize::try_from((mixed ^ (mixed >> 31)) % sides as u64).unwrap()
    }
}

/// Damages `bytes` one to three times: flips a bit, cuts, inserts or repeats bytes, or inserts a hostile
/// number.
pub fn mutate(bytes: &mut Vec<u8>, dice: &mut impl FnMut(usize) -> usize) {
    for _ in 0..=dice(3) {
        let at = dice(bytes.len() + 1);
        match dice(7) {
            0 | 1 if at < bytes.len() => bytes[at] ^= 1 << dice(8),
            2 => bytes.truncate(at),
            3 => bytes.insert(at, dice(256) as u8),
            4 if at < bytes.len() => drop(bytes.remove(at)),
            5 => {
                let hostile: [&[u8]; 4] = [
                    &[0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x01],
                    &[0xfe, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x01],
                    &[0xfe, 0xff, 0xff, 0xff, 0x0f],
                    &[0x80],
                ];
                bytes.splice(at..at, hostile[dice(4)].iter().copied());
            }
            _ => {
                let end = at + dice(bytes.len() - at + 1);
                let piece = bytes[at..end].to_vec();
                bytes.splice(at..at, piece);
            }
        }
    }
}
