//! Encryption of secrets at rest.
//!
//! A sealed text is `enc:aes:<key name>:<base64 of nonce and ciphertext>`, or `enc:identity:noname:<base64>` where no key
//! is configured. The first key seals, every key opens, so keys can be rotated.

use std::sync::Arc;

use aes_gcm::aead::{Aead, KeyInit};
use aes_gcm::{Aes256Gcm, Nonce};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use dstack_backend_types::Secret;
use dstack_store::Sealed;

const NONCE_BYTES: usize = 12;

/// Why a sealed text cannot be opened, or a key not be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum KeyringError {
    /// The key is not 32 bytes in base64.
    #[error("encryption key {name:?} is not 32 bytes in base64")]
    BadKey {
        /// Its name.
        name: String,
    },
    /// The text was sealed with a key that is not configured any more, or damaged.
    #[error(
        "a stored secret cannot be opened with any configured encryption key; was a key removed from config.yml? Servers that share a database need the same keys"
    )]
    CannotOpen,
    /// The system gives no random numbers.
    #[error("the system gives no random numbers")]
    NoChance,
}

/// One AES-256 key.
#[derive(Clone)]
struct Key {
    name: String,
    cipher: Aes256Gcm,
}

/// The configured keys, the sealing one first. None means that secrets are stored as they are.
#[derive(Clone, Default)]
pub struct Keyring {
    keys: Arc<[Key]>,
}

impl std::fmt::Debug for Keyring {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_list()
            .entries(self.keys.iter().map(|key| &key.name))
            .finish()
    }
}

impl Keyring {
    /// Builds the ring from (name, base64 of 32 bytes).
    ///
    /// # Errors
    /// A key of another length.
    pub fn new(
        keys: impl IntoIterator<Item = (String, Secret<String>)>,
    ) -> Result<Self, KeyringError> {
        let keys = keys
            .into_iter()
            .map(|(name, secret)| {
                let bytes = BASE64.decode(secret.expose().trim()).unwrap_or_default();
                let Ok(cipher) = Aes256Gcm::new_from_slice(&bytes) else {
                    return Err(KeyringError::BadKey { name });
                };
                Ok(Key { name, cipher })
            })
            .collect::<Result<Vec<_>, _>>()?;
        Ok(Self { keys: keys.into() })
    }

    /// A fresh key, in the form [`Keyring::new`] takes.
    ///
    /// # Errors
    /// The system gives no random numbers.
    pub fn generate_key() -> Result<Secret<String>, KeyringError> {
        let bytes: [u8; 32] = random()?;
        Ok(Secret::new(BASE64.encode(bytes)))
    }

    /// Whether secrets are stored as they are.
    #[must_use]
    pub fn is_identity(&self) -> bool {
        self.keys.is_empty()
    }

    /// Seals a text for the database.
    ///
    /// # Errors
    /// The system gives no random numbers.
    pub fn seal(&self, text: &str) -> Result<Sealed, KeyringError> {
        let Some(key) = self.keys.first() else {
            return Ok(Sealed::new(format!(
                "enc:identity:noname:{}",
                BASE64.encode(text)
            )));
        };
        let nonce: [u8; NONCE_BYTES] = random()?;
        let sealed = key
            .cipher
            .encrypt(&Nonce::from(nonce), text.as_bytes())
            .map_err(|_| KeyringError::NoChance)?;
        let mut bytes = nonce.to_vec();
        bytes.extend_from_slice(&sealed);
        Ok(Sealed::new(format!(
            "enc:aes:{}:{}",
            key.name,
            BASE64.encode(bytes)
        )))
    }

    /// Opens what [`Keyring::seal`] made, now or under an earlier key that is still configured.
    ///
    /// # Errors
    /// No configured key fits.
    pub fn open(&self, sealed: &Sealed) -> Result<Secret<String>, KeyringError> {
        let mut parts = sealed.as_str().splitn(4, ':');
        let (Some("enc"), Some(kind), Some(_name), Some(body)) =
            (parts.next(), parts.next(), parts.next(), parts.next())
        else {
            return Err(KeyringError::CannotOpen);
        };
        let bytes = BASE64.decode(body).map_err(|_| KeyringError::CannotOpen)?;
        let plain = match kind {
            "identity" => Some(bytes),
            // The name only helps people: keys may have been renamed.
            "aes" => self.keys.iter().find_map(|key| decrypt(key, &bytes)),
            _ => None,
        };
        let text = plain
            .and_then(|plain| String::from_utf8(plain).ok())
            .ok_or(KeyringError::CannotOpen)?;
        Ok(Secret::new(text))
    }
}

fn decrypt(key: &Key, bytes: &[u8]) -> Option<Vec<u8>> {
    let (nonce, sealed) = bytes.split_first_chunk::<NONCE_BYTES>()?;
    key.cipher.decrypt(&Nonce::from(*nonce), sealed).ok()
}

/// Bytes from the system's generator.
pub(crate) fn random<const N: usize>() -> Result<[u8; N], KeyringError> {
    use rand::TryRng as _;
    let mut bytes = [0; N];
    rand::rngs::SysRng
        .try_fill_bytes(&mut bytes)
        .map_err(|_| KeyringError::NoChance)?;
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::{Keyring, KeyringError};
    use dstack_store::Sealed;

    #[test]
    fn what_is_sealed_opens_again_also_after_a_rotation() {
        let old = Keyring::generate_key().unwrap();
        let new = Keyring::generate_key().unwrap();
        let before = Keyring::new([("one".to_owned(), old.clone())]).unwrap();
        let sealed = before.seal("tok:en").unwrap();
        assert!(!sealed.as_str().contains("tok"));
        assert_ne!(
            sealed.as_str(),
            before.seal("tok:en").unwrap().as_str(),
            "each sealing has its own nonce"
        );
        let after =
            Keyring::new([("two".to_owned(), new.clone()), ("one".to_owned(), old)]).unwrap();
        assert_eq!(after.open(&sealed).unwrap().expose(), "tok:en");
        let without = Keyring::new([("two".to_owned(), new)]).unwrap();
        assert_eq!(without.open(&sealed).unwrap_err(), KeyringError::CannotOpen);
    }

    #[test]
    fn no_key_means_identity_and_damage_is_seen() {
        let none = Keyring::default();
        let sealed = none.seal("plain").unwrap();
        assert_eq!(none.open(&sealed).unwrap().expose(), "plain");
        let ring = Keyring::new([("k".to_owned(), Keyring::generate_key().unwrap())]).unwrap();
        assert_eq!(
            ring.open(&sealed).unwrap().expose(),
            "plain",
            "stored before keys were configured"
        );
        let mut text = ring.seal("x").unwrap().as_str().to_owned();
        text.truncate(text.len() - 4);
        assert!(ring.open(&Sealed::new(text)).is_err());
        assert!(ring.open(&Sealed::new("plain text")).is_err());
        assert!(Keyring::new([("k".to_owned(), "c2hvcnQ=".to_owned().into())]).is_err());
    }
}
