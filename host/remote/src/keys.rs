//! SSH key pairs in OpenSSH's text form.

use hmac::{Hmac, KeyInit as _, Mac as _};
use russh::keys::ssh_key::private::{Ed25519Keypair, KeypairData};
use russh::keys::{Algorithm, PrivateKey, PublicKey, decode_secret_key, ssh_key::LineEnding};
use sha2::Sha256;

use crate::{RemoteError, Secret};

/// A key pair as text: what is stored for projects and users, and put into `authorized_keys`.
#[derive(Debug, Clone)]
pub struct KeyPair {
    /// The OpenSSH private key, several lines, ending in a newline.
    pub private: Secret,
    /// One line: `ssh-ed25519 <base64> <comment>`.
    pub public: String,
}

impl KeyPair {
    /// Makes a fresh ed25519 pair; `comment` ends up in the public line.
    ///
    /// # Errors
    /// [`RemoteError::Invalid`] if the comment has a line break or the key cannot be written out.
    pub fn generate(comment: &str) -> Result<Self, RemoteError> {
        if comment.contains(['\n', '\r']) {
            return Err(RemoteError::Invalid(
                "an ssh key's comment is one line".to_owned(),
            ));
        }
        let invalid = |e| RemoteError::Invalid(format!("cannot make an ssh key: {e}"));
        let mut key = PrivateKey::random(&mut rand::rng(), Algorithm::Ed25519).map_err(invalid)?;
        key.set_comment(comment);
        Self::of(&key)
    }

    /// The ed25519 pair that belongs to `label`, always the same, for those who know `secret`: so that it need not be
    /// kept anywhere.
    ///
    /// # Errors
    /// [`RemoteError::Invalid`] if the key cannot be written out.
    pub fn derive(secret: &Secret, label: &str) -> Result<Self, RemoteError> {
        let mac = Hmac::<Sha256>::new_from_slice(secret.expose().as_bytes());
        let mut mac = mac.map_err(|e| RemoteError::Invalid(format!("cannot derive a key: {e}")))?;
        mac.update(label.as_bytes());
        let seed: [u8; 32] = mac.finalize().into_bytes().into();
        let pair = KeypairData::from(Ed25519Keypair::from_seed(&seed));
        let invalid = |e| RemoteError::Invalid(format!("cannot make an ssh key: {e}"));
        Self::of(&PrivateKey::new(pair, label).map_err(invalid)?)
    }

    fn of(key: &PrivateKey) -> Result<Self, RemoteError> {
        let invalid = |e| RemoteError::Invalid(format!("cannot make an ssh key: {e}"));
        let private = key.to_openssh(LineEnding::LF).map_err(invalid)?;
        let public = key.public_key().to_openssh().map_err(invalid)?;
        Ok(Self {
            private: Secret::new(private.as_str()),
            public,
        })
    }
}

/// What a line with a public key says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PublicKeyInfo {
    /// The line without options and surrounding blanks.
    pub line: String,
    /// Algorithm, such as `ssh-ed25519`.
    pub algorithm: String,
    /// `SHA256:…`
    pub fingerprint: String,
    /// The comment; empty if there is none.
    pub comment: String,
}

/// Reads a public key in OpenSSH's text form.
///
/// # Errors
/// [`RemoteError::Invalid`] if it is none.
pub fn read_public_key(line: &str) -> Result<PublicKeyInfo, RemoteError> {
    let key = russh::keys::PublicKey::from_openssh(line.trim())
        .map_err(|e| RemoteError::Invalid(format!("unusable ssh public key: {e}")))?;
    let invalid = |e| RemoteError::Invalid(format!("cannot write the public key: {e}"));
    Ok(PublicKeyInfo {
        line: key.to_openssh().map_err(invalid)?,
        algorithm: key.algorithm().as_str().to_owned(),
        fingerprint: key.fingerprint(russh::keys::HashAlg::Sha256).to_string(),
        comment: key.comment().to_string(),
    })
}

/// The public line of an OpenSSH private key.
///
/// # Errors
/// [`RemoteError::Invalid`] if the text is no private key or is protected by a passphrase.
pub fn public_key_of(private: &Secret) -> Result<String, RemoteError> {
    let line = parse(private)?.public_key().to_openssh();
    line.map_err(|e| RemoteError::Invalid(format!("cannot write the public key: {e}")))
}

/// Reads a private key; the error never quotes it.
pub(crate) fn parse(private: &Secret) -> Result<PrivateKey, RemoteError> {
    decode_secret_key(private.expose(), None)
        .map_err(|e| RemoteError::Invalid(format!("unusable ssh private key: {e}")))
}

/// What a login is made with.
pub(crate) enum Opener {
    /// A private key.
    Key(Box<PrivateKey>),
    /// A key that an SSH agent holds.
    Agent(Box<PublicKey>),
}

/// Reads a private key, or a public one in a line, which stands for the agent's.
pub(crate) fn opener(text: &Secret) -> Result<Opener, RemoteError> {
    let line = text.expose().trim();
    let is_public = ["ssh-", "ecdsa-", "sk-"]
        .iter()
        .any(|start| line.starts_with(start));
    if !is_public {
        return parse(text).map(|key| Opener::Key(Box::new(key)));
    }
    PublicKey::from_openssh(line)
        .map(|key| Opener::Agent(Box::new(key)))
        .map_err(|e| RemoteError::Invalid(format!("unusable ssh public key: {e}")))
}

/// Whether the text is a public key in one line.
pub fn is_public_key(line: &str) -> bool {
    matches!(opener(&Secret::new(line)), Ok(Opener::Agent(_)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_generated_pair_belongs_together() {
        let pair = KeyPair::generate("dstack project main").unwrap();
        assert!(
            pair.public.starts_with("ssh-ed25519 AAAA"),
            "{}",
            pair.public
        );
        assert!(
            pair.public.ends_with(" dstack project main"),
            "{}",
            pair.public
        );
        assert_eq!(public_key_of(&pair.private).unwrap(), pair.public);
        let other = KeyPair::generate("x").unwrap();
        assert_ne!(other.public, pair.public);
    }

    #[test]
    fn a_private_key_never_shows_in_debug_or_errors() {
        let pair = KeyPair::generate("c").unwrap();
        assert!(!format!("{pair:?}").contains("PRIVATE KEY"));
        let bad = public_key_of(&Secret::new("-----BEGIN hunter2")).unwrap_err();
        assert!(!bad.to_string().contains("hunter2"), "{bad}");
    }

    #[test]
    fn a_derived_pair_is_the_same_for_the_same_secret_and_label_alone() {
        let derive = |secret, label| KeyPair::derive(&Secret::new(secret), label).unwrap().public;
        assert_eq!(derive("s", "run 1"), derive("s", "run 1"));
        assert_ne!(derive("s", "run 1"), derive("s", "run 2"));
        assert_ne!(derive("s", "run 1"), derive("t", "run 1"));
        let pair = KeyPair::derive(&Secret::new("s"), "run 1").unwrap();
        assert_eq!(public_key_of(&pair.private).unwrap(), pair.public);
    }

    #[test]
    fn a_public_line_is_read() {
        let pair = KeyPair::generate("me@example").unwrap();
        let read = read_public_key(&format!(" {}\n", pair.public)).unwrap();
        assert_eq!(read.line, pair.public);
        assert_eq!(
            (read.algorithm.as_str(), read.comment.as_str()),
            ("ssh-ed25519", "me@example")
        );
        assert!(
            read.fingerprint.starts_with("SHA256:"),
            "{}",
            read.fingerprint
        );
        for wrong in ["", "garbage", "ssh-ed25519 AAAA", "ssh-ed25519"] {
            assert!(read_public_key(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn a_comment_of_two_lines_is_refused() {
        assert!(KeyPair::generate("a\nssh-rsa AAAA").is_err());
    }
}
