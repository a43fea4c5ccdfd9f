//! Answers in XML.

use dstack_backend_sdk::BackendError;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

/// A list of EC2: `<xSet><item>…</item></xSet>`.
#[derive(Debug, Clone, Deserialize)]
pub(crate) struct Set<T> {
    #[serde(rename = "item", default = "Vec::new")]
    pub(crate) items: Vec<T>,
}

impl<T> Default for Set<T> {
    fn default() -> Self {
        Self { items: Vec::new() }
    }
}

/// A list of the other services: `<X><member>…</member></X>`.
#[derive(Debug, Clone, Deserialize)]
pub(crate) struct Members<T> {
    #[serde(rename = "member", default = "Vec::new")]
    pub(crate) items: Vec<T>,
}

impl<T> Default for Members<T> {
    fn default() -> Self {
        Self { items: Vec::new() }
    }
}

/// Reads an answer. What the message says of the place is a name of ours, never a value of the answer.
pub(crate) fn read<T: DeserializeOwned>(what: &str, body: &[u8]) -> Result<T, BackendError> {
    let text = std::str::from_utf8(body)
        .map_err(|_| BackendError::internal(format!("{what}: the reply is no text")))?;
    quick_xml::de::from_str(text).map_err(|error| {
        let why = match error {
            quick_xml::DeError::Custom(why) => without_values(&why),
            quick_xml::DeError::UnexpectedEof => "it ends too early".to_owned(),
            _ => "it is no such XML".to_owned(),
        };
        BackendError::internal(format!("{what}: the reply is not understood: {why}"))
    })
}

/// Errors of serde quote in double quotes what they stumbled over.
fn without_values(message: &str) -> String {
    let parts = message.split('"').enumerate();
    let parts = parts.map(|(at, part)| if at % 2 == 0 { part } else { "…" });
    parts.collect()
}

/// Code and message of an error, in the form of EC2 or of the other services; null if it is neither.
pub(crate) fn error(body: &[u8]) -> Value {
    #[derive(Deserialize)]
    struct Failure {
        #[serde(rename = "Errors")]
        errors: Option<Errors>,
        #[serde(rename = "Error")]
        error: Option<One>,
    }
    #[derive(Deserialize)]
    struct Errors {
        #[serde(rename = "Error")]
        error: One,
    }
    #[derive(Deserialize)]
    #[serde(rename_all = "PascalCase")]
    struct One {
        code: Option<String>,
        message: Option<String>,
    }
    let text = String::from_utf8_lossy(body);
    let Ok(failure) = quick_xml::de::from_str::<Failure>(&text) else {
        return Value::Null;
    };
    let one = failure.error.or(failure.errors.map(|errors| errors.error));
    one.map_or(
        Value::Null,
        |one| json!({"code": one.code, "message": one.message}),
    )
}

#[cfg(test)]
mod tests {
    use super::{Set, error, read};
    use serde::Deserialize;
    use serde_json::json;

    #[derive(Debug, Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct Answer {
        #[serde(default)]
        thing_set: Set<Thing>,
        #[serde(default)]
        other_set: Set<Thing>,
        next_token: Option<String>,
    }

    #[derive(Debug, Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct Thing {
        thing_id: String,
        size: u32,
    }

    #[test]
    fn lists_may_be_empty_absent_or_have_one_item() {
        let one = "<R xmlns=\"http://ec2\"><thingSet><item><thingId>a &amp; b</thingId><size>3</size><new/></item></thingSet></R>";
        let answer: Answer = read("x", one.as_bytes()).unwrap();
        assert_eq!(answer.thing_set.items[0].thing_id, "a & b");
        assert_eq!(answer.thing_set.items[0].size, 3);
        assert!(answer.other_set.items.is_empty() && answer.next_token.is_none());
        let none = "<?xml version=\"1.0\"?>\n<R>\n <thingSet/>\n</R>   ";
        let answer: Answer = read("x", none.as_bytes()).unwrap();
        assert!(answer.thing_set.items.is_empty());
    }

    #[test]
    fn what_is_not_understood_is_an_error_without_values() {
        let wrong =
            "<R><thingSet><item><thingId>a</thingId><size>hush</size></item></thingSet></R>";
        for body in [wrong, "<R><thingSet>", "<html>proxy", ""] {
            let error = read::<Answer>("DescribeThings", body.as_bytes());
            let Err(error) = error else { continue };
            assert!(error.message.starts_with("DescribeThings"), "{error}");
            assert!(!error.message.contains("hush"), "{error}");
        }
        assert!(read::<Answer>("x", wrong.as_bytes()).is_err());
        assert!(read::<Answer>("x", b"\xff\xfe").is_err());
    }

    #[test]
    fn errors_of_both_forms_are_read() {
        let ec2 = b"<?xml version=\"1.0\"?><Response><Errors><Error><Code>A.B</Code><Message>m</Message></Error></Errors><RequestID>r</RequestID></Response>";
        assert_eq!(error(ec2), json!({"code": "A.B", "message": "m"}));
        let sts = b"<ErrorResponse><Error><Type>Sender</Type><Code>C</Code><Message>n</Message></Error></ErrorResponse>";
        assert_eq!(error(sts)["code"], "C");
        assert!(error(b"oops").is_null());
    }
}
