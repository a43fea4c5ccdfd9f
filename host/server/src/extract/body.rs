//! Request bodies: strict where the API is strict.

use axum::body::Bytes;
use axum::extract::{FromRequest, Request};
use serde::de::DeserializeOwned;
use serde_json::Value;
use serde_path_to_error::{Segment, Track};

use super::guard::Whole;
use super::named::Named;
use crate::app::App;
use crate::error::{ApiError, Invalid};

/// A JSON body. Unknown keys are refused.
pub(crate) struct Body<T>(pub(crate) T);

/// A JSON body that may be absent; then it is the default.
pub(crate) struct OptionalBody<T>(pub(crate) T);

impl<T: DeserializeOwned> FromRequest<App> for Body<T> {
    type Rejection = ApiError;

    async fn from_request(request: Request, app: &App) -> Result<Self, ApiError> {
        let bytes = read(request, app).await?;
        if bytes.is_empty() {
            return Err(ApiError::Invalid(vec![Invalid {
                kind: "missing",
                path: Vec::new(),
                msg: "Field required".to_owned(),
            }]));
        }
        parse(&bytes).map(Self)
    }
}

impl<T: DeserializeOwned + Default> FromRequest<App> for OptionalBody<T> {
    type Rejection = ApiError;

    async fn from_request(request: Request, app: &App) -> Result<Self, ApiError> {
        let bytes = read(request, app).await?;
        if bytes.is_empty() || bytes.as_ref() == b"null" {
            Ok(Self(T::default()))
        } else {
            parse(&bytes).map(Self)
        }
    }
}

/// The bytes of a body; the guard may have read it already.
pub(super) async fn read(mut request: Request, app: &App) -> Result<Bytes, ApiError> {
    if let Some(Whole(bytes)) = request.extensions_mut().remove() {
        return Ok(bytes);
    }
    Bytes::from_request(request, app)
        .await
        .map_err(|rejection| {
            ApiError::Invalid(vec![Invalid {
                kind: "value_error",
                path: Vec::new(),
                msg: rejection.body_text(),
            }])
        })
}

/// Refuses what is no JSON at all. An empty body is left to the operation.
pub(super) fn check_syntax(bytes: &[u8]) -> Result<(), ApiError> {
    if bytes.is_empty() {
        return Ok(());
    }
    match serde_json::from_slice::<serde::de::IgnoredAny>(bytes) {
        Ok(_) => Ok(()),
        Err(error) => Err(ApiError::Invalid(vec![Invalid {
            kind: "json_invalid",
            path: vec![Value::from(position(bytes, &error))],
            msg: "JSON decode error".to_owned(),
        }])),
    }
}

/// Where in the text an error is, in bytes.
fn position(bytes: &[u8], error: &serde_json::Error) -> usize {
    let lines = bytes.split(|byte| *byte == b'\n');
    let before: usize = lines
        .take(error.line().saturating_sub(1))
        .map(|line| line.len() + 1)
        .sum();
    before + error.column().saturating_sub(1)
}

/// Reads a value and refuses what the type does not know.
pub(super) fn parse<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, ApiError> {
    let mut json = serde_json::Deserializer::from_slice(bytes);
    let mut track = Track::new();
    let mut unknown = Vec::new();
    let reader = serde_path_to_error::Deserializer::new(Named(&mut json), &mut track);
    let read = serde_ignored::deserialize(reader, |path| unknown.push(path.to_string()));
    let value = match read.and_then(|value| json.end().map(|()| value)) {
        Ok(value) => value,
        Err(error) => {
            let kind = if error.is_data() {
                "value_error"
            } else {
                "json_invalid"
            };
            let path = track.path().iter().filter_map(segment).collect();
            return Err(ApiError::Invalid(vec![Invalid {
                kind,
                path,
                msg: plain(&error),
            }]));
        }
    };
    if unknown.is_empty() {
        return Ok(value);
    }
    let problems = unknown
        .iter()
        // `?` stands for the inside of an optional value.
        .map(|path| {
            path.split('.')
                .filter(|key| *key != "?")
                .map(index_or_key)
                .collect()
        })
        .map(|path| Invalid {
            kind: "extra_forbidden",
            path,
            msg: "Extra inputs are not permitted".to_owned(),
        })
        .collect();
    Err(ApiError::Invalid(problems))
}

fn segment(segment: &Segment) -> Option<Value> {
    match segment {
        Segment::Seq { index } => Some(Value::from(*index)),
        Segment::Map { key } => Some(Value::from(key.as_str())),
        Segment::Enum { variant } => Some(Value::from(variant.as_str())),
        Segment::Unknown => None,
    }
}

fn index_or_key(key: &str) -> Value {
    key.parse::<u64>()
        .map_or_else(|_| Value::from(key), Value::from)
}

/// The error without the position in the text, which means nothing to the user of a client.
fn plain(error: &serde_json::Error) -> String {
    let text = error.to_string();
    text.rfind(" at line ")
        .and_then(|end| text.get(..end))
        .map_or(text.clone(), str::to_owned)
}

#[cfg(test)]
mod tests {
    use dstack_api::projects::SetProjectMembersRequest;
    use dstack_api::runs::{ListRunsRequest, StopRunsRequest};
    use serde_json::json;

    use super::parse;
    use crate::error::{ApiError, Invalid};

    fn problems<T: serde::de::DeserializeOwned>(body: &str) -> Vec<Invalid> {
        match parse::<T>(body.as_bytes()) {
            Err(ApiError::Invalid(problems)) => problems,
            Err(other) => panic!("{other}"),
            Ok(_) => Vec::new(),
        }
    }

    #[test]
    fn unknown_keys_are_refused_at_every_level() {
        assert!(problems::<ListRunsRequest>(r#"{"limit": 5}"#).is_empty());
        let top = problems::<ListRunsRequest>(r#"{"limit": 5, "colour": 1}"#);
        assert_eq!(
            (top[0].kind, &top[0].path),
            ("extra_forbidden", &vec![json!("colour")])
        );
        let deep = problems::<SetProjectMembersRequest>(
            r#"{"members": [{"username": "a", "project_role": "user", "x": 1}]}"#,
        );
        assert_eq!(deep[0].path, vec![json!("members"), json!(0), json!("x")]);
    }

    #[test]
    fn a_list_is_no_object_at_any_level() {
        for body in ["[]", "[null, null]", "1", "\"x\"", "true"] {
            assert_eq!(problems::<ListRunsRequest>(body).len(), 1, "{body}");
        }
        let deep = problems::<SetProjectMembersRequest>(r#"{"members": [["a", "user"]]}"#);
        assert_eq!(deep[0].path, vec![json!("members"), json!(0)]);
        assert!(deep[0].msg.contains("sequence"), "{}", deep[0].msg);
    }

    #[test]
    fn what_is_no_json_is_told_with_its_place() {
        for (body, at) in [("{", 0), ("{\"a\": tru}", 9), ("{}\n x", 4), ("\u{1}", 0)] {
            match super::check_syntax(body.as_bytes()) {
                Err(ApiError::Invalid(problems)) => {
                    assert_eq!(problems[0].kind, "json_invalid", "{body}");
                    assert_eq!(problems[0].path, vec![json!(at)], "{body}");
                }
                other => panic!("{body}: {other:?}"),
            }
        }
        assert!(super::check_syntax(b"").is_ok());
        assert!(super::check_syntax(b" {} ").is_ok());
    }

    #[test]
    fn wrong_values_are_named_by_their_path() {
        let wrong = problems::<SetProjectMembersRequest>(
            r#"{"members": [{"username": "a", "project_role": "king"}]}"#,
        );
        assert_eq!(
            wrong[0].path,
            vec![json!("members"), json!(0), json!("project_role")]
        );
        assert!(
            wrong[0].msg.contains("king") && !wrong[0].msg.contains("line"),
            "{}",
            wrong[0].msg
        );
        assert!(
            problems::<StopRunsRequest>(r#"{"runs_names": []}"#)[0]
                .msg
                .contains("abort")
        );
        assert_eq!(
            problems::<StopRunsRequest>(r#"{"runs_names": "#)[0].kind,
            "json_invalid"
        );
        assert_eq!(
            problems::<StopRunsRequest>(r#"{"runs_names": [], "abort": false} x"#)[0].kind,
            "json_invalid"
        );
    }
}
