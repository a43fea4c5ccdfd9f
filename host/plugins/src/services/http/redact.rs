//! What of a request may be seen by others: no credentials, no values of a query.

use reqwest::Url;
use serde_json::Value;

/// What stands in place of a secret.
pub(super) const HIDDEN: &str = "***";

/// Parts of names whose values are secrets.
const SECRET_WORDS: &[&str] = &[
    "auth",
    "token",
    "secret",
    "password",
    "passwd",
    "passphrase",
    "cookie",
    "apikey",
    "accesskey",
    "privatekey",
    "credential",
    "signature",
    "session",
];
/// Parts of names that only look like it: pages are named by tokens, too.
const HARMLESS_WORDS: &[&str] = &["next", "page", "continu", "author"];

/// Whether the value of a header, parameter or field with this name is hidden.
pub(super) fn is_secret(name: &str) -> bool {
    let plain: String = name
        .chars()
        .filter(char::is_ascii_alphanumeric)
        .map(|c| c.to_ascii_lowercase())
        .collect();
    let has = |words: &[&str]| words.iter().any(|word| plain.contains(word));
    if plain == "authorization" || plain == "proxyauthorization" {
        return true;
    }
    plain == "key" || plain == "sig" || (has(SECRET_WORDS) && !has(HARMLESS_WORDS))
}

/// An address for logs and errors: no login, no values of the query, no fragment.
pub(super) fn url_for_people(text: &str) -> String {
    let Ok(mut url) = Url::parse(text) else {
        return "an address that makes no sense".to_owned();
    };
    let names: Vec<String> = url
        .query_pairs()
        .map(|(name, _)| name.into_owned())
        .collect();
    strip_login(&mut url);
    url.set_query(None);
    if names.is_empty() {
        return url.into();
    }
    format!("{url}?{}", names.join("&"))
}

/// An address for the tape: values of secret parameters are hidden, all else is as it was.
pub(super) fn url_for_tape(text: &str) -> String {
    let Ok(mut url) = Url::parse(text) else {
        return text.to_owned();
    };
    strip_login(&mut url);
    if url.query_pairs().any(|(name, _)| is_secret(&name)) {
        let pairs: Vec<(String, String)> = url
            .query_pairs()
            .map(|(name, value)| {
                let value = if is_secret(&name) {
                    HIDDEN.into()
                } else {
                    value
                };
                (name.into_owned(), value.into_owned())
            })
            .collect();
        url.query_pairs_mut().clear().extend_pairs(pairs);
    }
    url.into()
}

fn strip_login(url: &mut Url) {
    let is_stripped = url.set_username("").is_ok() && url.set_password(None).is_ok();
    debug_assert!(
        is_stripped || !url.has_authority(),
        "an address with a host takes an empty login"
    );
    url.set_fragment(None);
}

/// The values of secret parameters of an address.
pub(super) fn secret_parameters(text: &str) -> Vec<String> {
    let Ok(url) = Url::parse(text) else {
        return Vec::new();
    };
    let login = url.password().map(str::to_owned);
    url.query_pairs()
        .filter(|(name, _)| is_secret(name))
        .map(|(_, value)| value.into_owned())
        .chain(login)
        .collect()
}

/// The values of JSON fields with secret names, at any depth.
pub(super) fn secret_fields(value: &Value, found: &mut Vec<String>) {
    match value {
        Value::Object(fields) => {
            for (name, value) in fields {
                match value {
                    Value::String(text) if is_secret(name) => found.push(text.clone()),
                    other => secret_fields(other, found),
                }
            }
        }
        Value::Array(items) => items.iter().for_each(|item| secret_fields(item, found)),
        _ => {}
    }
}

/// Hides values of JSON fields with secret names, at any depth.
pub(super) fn hide_fields(value: &mut Value) {
    match value {
        Value::Object(fields) => {
            for (name, value) in fields {
                if is_secret(name) && (value.is_string() || value.is_number()) {
                    *value = Value::from(HIDDEN);
                } else {
                    hide_fields(value);
                }
            }
        }
        Value::Array(items) => items.iter_mut().for_each(hide_fields),
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use super::{HIDDEN, hide_fields, is_secret, url_for_people, url_for_tape};
    use serde_json::json;

    #[test]
    fn names_of_secrets() {
        for name in [
            "Authorization",
            "X-Auth-Token",
            "api_key",
            "X-API-Key",
            "Set-Cookie",
            "access_token",
            "clientSecret",
            "X-Amz-Signature",
            "X-Amz-Security-Token",
            "key",
            "privateKey",
        ] {
            assert!(is_secret(name), "{name}");
        }
        for name in [
            "nextToken",
            "page_token",
            "content-type",
            "key_name",
            "author",
            "continuation-token",
        ] {
            assert!(!is_secret(name), "{name}");
        }
    }

    #[test]
    fn addresses() {
        let url = "https://me:hush@a.example:8/p%2Fq?page=2&api_key=hush#hush";
        assert_eq!(
            url_for_people(url),
            "https://a.example:8/p%2Fq?page&api_key"
        );
        assert_eq!(
            url_for_tape(url),
            "https://a.example:8/p%2Fq?page=2&api_key=***"
        );
        assert_eq!(
            url_for_tape("https://a.example/p?q=a%20b+c"),
            "https://a.example/p?q=a%20b+c"
        );
        assert!(!url_for_people("hush").contains("hush"));
    }

    #[test]
    fn fields() {
        let mut body =
            json!({"name": "n", "list": [{"password": "hush", "token": 7, "tokens": null}]});
        hide_fields(&mut body);
        assert_eq!(
            body,
            json!({"name": "n", "list": [{"password": HIDDEN, "token": HIDDEN, "tokens": null}]})
        );
    }
}
