//! Identifiers of rows, and the chance they are made from.

use std::fmt;

use serde::{Deserialize, Serialize};
use uuid::Uuid;

macro_rules! id {
    ($(#[$doc:meta] $name:ident),+ $(,)?) => {$(
        #[$doc]
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        #[serde(transparent)]
        pub struct $name(pub Uuid);

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.0.fmt(f)
            }
        }

        impl From<Uuid> for $name {
            fn from(id: Uuid) -> Self {
                Self(id)
            }
        }

        impl std::str::FromStr for $name {
            type Err = uuid::Error;
            fn from_str(text: &str) -> Result<Self, Self::Err> {
                Uuid::parse_str(text).map(Self)
            }
        }
    )+};
}

id! {
    /// A project.
    ProjectId,
    /// A user of the server.
    UserId,
    /// A run: what one configuration became.
    RunId,
    /// One submission of one job; a retried job has a new id.
    JobId,
    /// A machine of a fleet, from the wish for it to its end.
    InstanceId,
    /// A fleet.
    FleetId,
    /// A network volume.
    VolumeId,
    /// A gateway.
    GatewayId,
    /// One machine of a gateway.
    GatewayReplicaId,
}

/// Chance as an argument: a seeded stream of ids, references and small numbers.
///
/// The shell seeds one for each step from the operating system, the simulator from its own seed, so
/// that the same view with the same stream gives the same changes. It is not a source of secrets.
#[derive(Debug, Clone)]
pub struct Ids {
    state: [u64; 4],
}

impl Ids {
    /// A stream that depends on nothing but `seed`.
    pub fn new(seed: [u64; 4]) -> Self {
        // All zeroes is the one state that this generator never leaves.
        Self {
            state: if seed == [0; 4] { [1, 2, 3, 4] } else { seed },
        }
    }

    /// A stream from one number, spread over the whole state.
    pub fn from_number(seed: u64) -> Self {
        let mut z = seed;
        let mut state = [0; 4];
        for word in &mut state {
            z = z.wrapping_add(0x9e37_79b9_7f4a_7c15);
            let mut x = z;
            x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
            x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
            *word = x ^ (x >> 31);
        }
        Self::new(state)
    }

    /// The next 64 bits (xoshiro256**).
    pub fn bits(&mut self) -> u64 {
        let [a, b, c, d] = self.state;
        let out = b.wrapping_mul(5).rotate_left(7).wrapping_mul(9);
        let (c, d) = (c ^ a, d ^ b);
        self.state = [a ^ d, b ^ c, c ^ (b << 17), d.rotate_left(45)];
        out
    }

    /// A number from 0 to `end - 1`; 0 when `end` is 0.
    pub fn below(&mut self, end: u64) -> u64 {
        u64::try_from((u128::from(self.bits()) * u128::from(end)) >> 64).unwrap_or(0)
    }

    /// A fraction from 0 up to, not including, 1.
    pub fn fraction(&mut self) -> f64 {
        f64::from(u32::try_from(self.bits() >> 32).unwrap_or(0)) / 4_294_967_296.0
    }

    /// A version 4 UUID.
    pub fn uuid(&mut self) -> Uuid {
        let (high, low) = (self.bits(), self.bits());
        uuid::Builder::from_random_bytes(((u128::from(high) << 64) | u128::from(low)).to_be_bytes())
            .into_uuid()
    }

    /// A provider reference: 16 characters of `[a-z0-9]`, put on everything that one provisioning
    /// attempt makes at a provider.
    pub fn provider_ref(&mut self) -> String {
        const LETTERS: &[u8; 36] = b"abcdefghijklmnopqrstuvwxyz0123456789";
        (0..16)
            .map(|_| {
                let at = usize::try_from(self.below(36)).unwrap_or(0);
                char::from(LETTERS[at % 36])
            })
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn same_seed_gives_the_same_stream() {
        let (mut a, mut b) = (Ids::from_number(7), Ids::from_number(7));
        assert_eq!((a.uuid(), a.provider_ref()), (b.uuid(), b.provider_ref()));
        assert_ne!(a.uuid(), Ids::from_number(8).uuid());
    }

    #[test]
    fn references_are_sixteen_lower_case_letters_or_digits() {
        let mut ids = Ids::from_number(1);
        for _ in 0..100 {
            let r = ids.provider_ref();
            assert_eq!(r.len(), 16);
            assert!(
                r.bytes()
                    .all(|b| b.is_ascii_lowercase() || b.is_ascii_digit())
            );
        }
        assert!((0..1000).all(|_| ids.below(10) < 10));
        assert_eq!(ids.below(0), 0);
    }
}
