//! Numbers that look random and are the same for the same seed (SplitMix64).

/// The source of them.
pub(super) struct Chance(u64);

impl Chance {
    pub(super) fn new(seed: u64) -> Self {
        Self(seed)
    }

    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// A number below `bound`, which is not 0.
    pub(super) fn below(&mut self, bound: usize) -> usize {
        (self.next() % bound as u64) as usize
    }

    pub(super) fn one_in(&mut self, times: usize) -> bool {
        self.below(times) == 0
    }

    /// One of several, each as likely as its weight says.
    pub(super) fn one_of<T: Copy>(&mut self, choices: &[(T, usize)]) -> T {
        let mut at = self.below(choices.iter().map(|(_, weight)| weight).sum());
        for (choice, weight) in choices {
            if at < *weight {
                return *choice;
            }
            at -= weight;
        }
        choices[0].0
    }
}
