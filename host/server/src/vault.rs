//! Encryption of what must not lie in the database in the clear: tokens, keys, credentials, secrets.
//!
//! Stored text has the form `enc:<type>:<key name>:<ciphertext>`. The first configured key encrypts; to decrypt, every
//! key of the stored type is tried, whatever its name, so keys can be renamed and rotated. The type `identity` stores
//! base64 and is always accepted for reading.

use aes_gcm::aead::{Aead, Generate, KeyInit};
use aes_gcm::{Aes256Gcm, Key, Nonce};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use dstack_store::Sealed;

/// Bytes of the nonce before the ciphertext.
const NONCE: usize = 12;

/// Why something stored cannot be read, or a key cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum VaultError {
    /// A key of `config.yml` is not what it should be.
    #[error("encryption key {name}: {reason}; a key is base64 of 32 random bytes")]
    BadKey {
        /// The key's name.
        name: String,
        /// What is wrong.
        reason: String,
    },
    /// No configured key opens it.
    #[error(
        "stored data is encrypted with key {name}, and no key of config.yml opens it; put the key that was used back into `encryption.keys`"
    )]
    WrongKey {
        /// The key's name as it was when the data was stored.
        name: String,
    },
    /// The stored text is not in the form that it should be.
    #[error("stored data is damaged: {0}")]
    Damaged(String),
}

struct AesKey {
    name: String,
    cipher: Box<Aes256Gcm>,
}

/// Seals and opens with the keys of `config.yml`.
pub struct Vault {
    keys: Vec<AesKey>,
    /// The first key of the file is `identity`, or there is none.
    is_plain: bool,
}

impl std::fmt::Debug for Vault {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let names: Vec<&str> = self.keys.iter().map(|key| key.name.as_str()).collect();
        f.debug_struct("Vault").field("keys", &names).field("is_plain", &self.is_plain).finish()
    }
}

/// A key of `config.yml`.
#[derive(Clone)]
pub enum VaultKey {
    /// Stores without encryption.
    Identity,
    /// AES-256-GCM.
    Aes {
        /// Its name, letters and digits.
        name: String,
        /// Base64 of 32 bytes.
        secret: String,
    },
}

impl std::fmt::Debug for VaultKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Identity => f.write_str("Identity"),
            Self::Aes { name, .. } => write!(f, "Aes({name})"),
        }
    }
}

/// A fresh key for a new `config.yml`: base64 of 32 random bytes.
#[must_use]
pub fn new_key() -> String {
    STANDARD.encode(Key::<Aes256Gcm>::generate())
}

impl Vault {
    /// With these keys; the first encrypts. Without keys nothing is encrypted.
    ///
    /// # Errors
    /// [`VaultError::BadKey`] names the key that cannot be used.
    pub fn new(keys: &[VaultKey]) -> Result<Self, VaultError> {
        let is_plain = !matches!(keys.first(), Some(VaultKey::Aes { .. }));
        let mut ready = Vec::new();
        for key in keys {
            let VaultKey::Aes { name, secret } = key else { continue };
            let bad = |reason: String| VaultError::BadKey { name: name.clone(), reason };
            let bytes = STANDARD.decode(secret.trim()).map_err(|error| bad(format!("not base64 ({error})")))?;
            let cipher = Aes256Gcm::new_from_slice(&bytes)
                .map_err(|_| bad(format!("{} bytes instead of 32", bytes.len())))?;
            ready.push(AesKey { name: name.clone(), cipher: Box::new(cipher) });
        }
        Ok(Self { keys: ready, is_plain })
    }

    /// Whether new data is stored without encryption.
    #[must_use]
    pub fn is_plain(&self) -> bool {
        self.is_plain
    }

    /// Encrypts for the database.
    ///
    /// # Errors
    /// [`VaultError::Damaged`] if the cipher refuses, which happens only for texts of many gigabytes.
    pub fn seal(&self, text: &str) -> Result<Sealed, VaultError> {
        let Some(key) = self.keys.first().filter(|_| !self.is_plain) else {
            return Ok(Sealed::new(format!("enc:identity:noname:{}", STANDARD.encode(text))));
        };
        let nonce = Nonce::generate();
        let cipher = key.cipher.encrypt(&nonce, text.as_bytes());
        let cipher = cipher.map_err(|_| VaultError::Damaged("the text is too long to encrypt".to_owned()))?;
        let mut bytes = nonce.to_vec();
        bytes.extend_from_slice(&cipher);
        Ok(Sealed::new(format!("enc:aes:{}:{}", key.name, STANDARD.encode(bytes))))
    }

    /// Decrypts what [`Vault::seal`] made.
    ///
    /// # Errors
    /// See [`VaultError`]; nothing of the content is in the text.
    pub fn open(&self, sealed: &Sealed) -> Result<String, VaultError> {
        let damaged = |what: &str| VaultError::Damaged(what.to_owned());
        let mut parts = sealed.as_str().splitn(4, ':');
        let (Some("enc"), Some(kind), Some(name), Some(body)) =
            (parts.next(), parts.next(), parts.next(), parts.next())
        else {
            return Err(damaged("it is not of the form enc:type:key:data"));
        };
        let bytes = STANDARD.decode(body).map_err(|_| damaged("it is not base64"))?;
        let plain = match kind {
            "identity" => bytes,
            "aes" => {
                let (nonce, cipher) = bytes.split_at_checked(NONCE).ok_or_else(|| damaged("it is too short"))?;
                let nonce = Nonce::try_from(nonce).map_err(|_| damaged("its nonce is too short"))?;
                self.keys
                    .iter()
                    .find_map(|key| key.cipher.decrypt(&nonce, cipher).ok())
                    .ok_or_else(|| VaultError::WrongKey { name: name.to_owned() })?
            }
            other => return Err(damaged(&format!("its type {other} is unknown"))),
        };
        String::from_utf8(plain).map_err(|_| damaged("it is not text"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn aes(name: &str) -> VaultKey {
        VaultKey::Aes { name: name.to_owned(), secret: new_key() }
    }

    #[test]
    fn what_is_sealed_opens_and_two_seals_differ() {
        let vault = Vault::new(&[aes("k")]).unwrap();
        let (a, b) = (vault.seal("grüße").unwrap(), vault.seal("grüße").unwrap());
        assert_ne!(a.as_str(), b.as_str());
        assert!(a.as_str().starts_with("enc:aes:k:"));
        assert_eq!(vault.open(&a).unwrap(), "grüße");
    }

    #[test]
    fn rotation_keeps_old_data_readable() {
        let (old, new) = (aes("old"), aes("new"));
        let sealed = Vault::new(std::slice::from_ref(&old)).unwrap().seal("x").unwrap();
        let both = Vault::new(&[new.clone(), old]).unwrap();
        assert_eq!(both.open(&sealed).unwrap(), "x");
        assert!(both.seal("y").unwrap().as_str().starts_with("enc:aes:new:"));
        let error = Vault::new(&[new]).unwrap().open(&sealed).unwrap_err();
        assert_eq!(error, VaultError::WrongKey { name: "old".to_owned() });
    }

    #[test]
    fn identity_is_written_without_keys_and_always_read() {
        let plain = Vault::new(&[]).unwrap();
        assert!(plain.is_plain());
        let sealed = plain.seal("t").unwrap();
        assert_eq!(sealed.as_str(), "enc:identity:noname:dA==");
        assert_eq!(Vault::new(&[aes("k")]).unwrap().open(&sealed).unwrap(), "t");
    }

    #[test]
    fn damaged_and_tampered_data_are_errors_without_the_content() {
        let vault = Vault::new(&[aes("k")]).unwrap();
        for text in ["", "x", "enc:aes:k", "enc:aes:k:!!", "enc:aes:k:AAAA", "enc:rot13:k:AAAA"] {
            assert!(matches!(vault.open(&Sealed::new(text)), Err(VaultError::Damaged(_))), "{text}");
        }
        let good = vault.seal("secret").unwrap();
        let tampered = format!("{}AA", good.as_str().strip_suffix("==").unwrap_or(good.as_str()));
        assert!(vault.open(&Sealed::new(tampered)).is_err());
        let bad = Vault::new(&[VaultKey::Aes { name: "short".into(), secret: "AAAA".into() }]).unwrap_err();
        assert!(bad.to_string().contains("3 bytes instead of 32"));
    }
}
