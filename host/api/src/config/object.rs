//! The macro that ties a configuration struct to its keys.

/// Defines a struct with its reader. Each field says how its key is read:
///
/// | form | absent | null |
/// |---|---|---|
/// | `required`, `required(f)` | problem | read |
/// | `optional`, `optional(f)` | `None` | `None` |
/// | `default(d)`, `default(d, f)` | `d` | read |
/// | `flat` | the field's own keys stand in this mapping | |
/// | `named("key", …)` | one of the above under another key | |
///
/// `known("key")` after the struct is a key somebody else has read. `check(f)` after the struct runs `f(&value, cx)` once all keys are read.
macro_rules! config {
    (
        $(#[$meta:meta])*
        pub struct $name:ident {
            $( $(#[$field_meta:meta])* pub $field:ident : $type:ty = $how:ident $( ( $($arg:tt)* ) )? ),+ $(,)?
        }
        $( known($known:literal) )? $( check($check:path) )?
    ) => {
        $(#[$meta])*
        #[derive(Debug, Clone, PartialEq, ::serde::Serialize)]
        pub struct $name {
            $( $(#[$field_meta])* pub $field: $type ),+
        }

        impl ::dstack_backend_types::reading::FromObject for $name {
            fn from_object(
                obj: &mut ::dstack_backend_types::reading::Obj<'_>,
                cx: &mut ::dstack_backend_types::reading::Reader,
            ) -> Result<Self, ::dstack_backend_types::reading::Failed> {
                $( obj.raw($known); )?
                $( let $field = $crate::config::object::key!(obj, cx, stringify!($field), $how $( ( $($arg)* ) )?); )+
                Ok(Self { $( $field: $field? ),+ })
            }
        }

        impl ::dstack_backend_types::reading::FromValue for $name {
            fn from_value(
                value: &::serde_json::Value,
                cx: &mut ::dstack_backend_types::reading::Reader,
            ) -> Result<Self, ::dstack_backend_types::reading::Failed> {
                let mut obj = cx.object(value)?;
                let read = <Self as ::dstack_backend_types::reading::FromObject>::from_object(&mut obj, cx);
                let finished = obj.finish(cx);
                let read = read?;
                finished?;
                $( $check(&read, cx)?; )?
                Ok(read)
            }
        }

        ::dstack_backend_types::deserialize_by_value!($name);
    };
}

/// How one key is read; see [`config!`].
macro_rules! key {
    ($obj:ident, $cx:ident, $key:expr, required) => { $obj.required($key, $cx) };
    ($obj:ident, $cx:ident, $key:expr, required($f:expr)) => { $obj.required_with($key, $cx, $f) };
    ($obj:ident, $cx:ident, $key:expr, optional) => { $obj.optional($key, $cx) };
    ($obj:ident, $cx:ident, $key:expr, optional($f:expr)) => { $obj.optional_with($key, $cx, $f) };
    ($obj:ident, $cx:ident, $key:expr, default($d:expr)) => { $obj.defaulted($key, $cx, || $d) };
    ($obj:ident, $cx:ident, $key:expr, default($d:expr, $f:expr)) => {
        $obj.defaulted_with($key, $cx, || $d, $f)
    };
    ($obj:ident, $cx:ident, $key:expr, flat) => {
        ::dstack_backend_types::reading::FromObject::from_object($obj, $cx)
    };
    ($obj:ident, $cx:ident, $key:expr, named($name:expr, $how:ident $( ( $($arg:tt)* ) )?)) => {
        $crate::config::object::key!($obj, $cx, $name, $how $( ( $($arg)* ) )?)
    };
}

pub(crate) use {config, key};
