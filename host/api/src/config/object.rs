//! The macro that ties a configuration struct to its keys.

/// Defines a struct with its reader. Each field says how its key is read:
///
/// | form | absent | null |
/// |---|---|---|
/// | `required`, `required(f)`, `required(f, s)` | problem | read |
/// | `optional`, `optional(f)`, `optional(f, s)` | `None` | `None` |
/// | `default(d)`, `default(d, f)`, `default(d, f, s)` | `d` | read |
/// | `flat` | the field's own keys stand in this mapping | |
/// | `named("key", …)` | one of the above under another key | |
///
/// `f` reads the value and `s` is its JSON Schema where it differs from that of the field's type; the docs of fields are
/// texts for people. After the struct: `known("key" = "word")` is a key somebody else has read, which has this word;
/// `check(f)` runs `f(&value, cx)` once all keys are read; `rules(f)` has schema keywords for rules across keys.
macro_rules! config {
    (
        $(#[doc = $doc:literal])* $(#[derive($($derive:ident),+)])?
        pub struct $name:ident {
            $(
                $(#[doc = $field_doc:literal])* $(#[serde($($serde:tt)*)])?
                pub $field:ident : $type:ty = $how:ident $( ( $($arg:tt)* ) )?
            ),+ $(,)?
        }
        $( known($known:literal = $word:literal) )? $( check($check:path) )? $( rules($rules:path) )?
    ) => {
        $(#[doc = $doc])* $(#[derive($($derive),+)])?
        #[derive(Debug, Clone, PartialEq, ::serde::Serialize)]
        pub struct $name {
            $( $(#[doc = $field_doc])* $(#[serde($($serde)*)])? pub $field: $type ),+
        }

        impl $crate::config::schema::Keys for $name {
            fn keys(
                object: &mut $crate::config::schema::Object,
                generator: &mut ::schemars::SchemaGenerator,
            ) {
                $( object.required($known, "", ::schemars::json_schema!({"const": $word})); )?
                $(
                    $crate::config::object::property!(
                        object, generator, stringify!($field), concat!($($field_doc),*), $type,
                        $how $( ( $($arg)* ) )?
                    );
                )+
            }
        }

        impl $crate::config::schema::Described for $name {
            const NAME: Option<&'static str> = Some(stringify!($name));

            fn describe(generator: &mut ::schemars::SchemaGenerator) -> ::schemars::Schema {
                let mut object = $crate::config::schema::Object::default();
                <Self as $crate::config::schema::Keys>::keys(&mut object, generator);
                #[allow(unused_mut, reason = "only some types have rules")]
                let mut schema = object.finish(stringify!($name), concat!($($doc),*));
                $( $crate::config::schema::parts::extend(&mut schema, $rules()); )?
                schema
            }
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
    ($obj:ident, $cx:ident, $key:expr, required($f:expr $(, $s:expr)?)) => { $obj.required_with($key, $cx, $f) };
    ($obj:ident, $cx:ident, $key:expr, optional) => { $obj.optional($key, $cx) };
    ($obj:ident, $cx:ident, $key:expr, optional($f:expr $(, $s:expr)?)) => { $obj.optional_with($key, $cx, $f) };
    ($obj:ident, $cx:ident, $key:expr, default($d:expr)) => { $obj.defaulted($key, $cx, || $d) };
    ($obj:ident, $cx:ident, $key:expr, default($d:expr, $f:expr $(, $s:expr)?)) => {
        $obj.defaulted_with($key, $cx, || $d, $f)
    };
    ($obj:ident, $cx:ident, $key:expr, flat) => {
        ::dstack_backend_types::reading::FromObject::from_object($obj, $cx)
    };
    ($obj:ident, $cx:ident, $key:expr, named($name:expr, $how:ident $( ( $($arg:tt)* ) )?)) => {
        $crate::config::object::key!($obj, $cx, $name, $how $( ( $($arg)* ) )?)
    };
}

/// What the schema says of one key; see [`config!`].
macro_rules! property {
    ($obj:ident, $g:ident, $key:expr, $doc:expr, $type:ty, required $(($f:expr))?) => {{
        let schema = $crate::config::schema::of::<$type>($g);
        $obj.required($key, $doc, schema)
    }};
    ($obj:ident, $g:ident, $key:expr, $doc:expr, $type:ty, required($f:expr, $s:expr)) => {{
        let schema = $s($g);
        $obj.required($key, $doc, schema)
    }};
    ($obj:ident, $g:ident, $key:expr, $doc:expr, $type:ty, optional $(($f:expr))?) => {{
        let schema = $crate::config::schema::of::<$type>($g);
        $obj.optional($key, $doc, schema)
    }};
    ($obj:ident, $g:ident, $key:expr, $doc:expr, $type:ty, optional($f:expr, $s:expr)) => {{
        let schema = $crate::config::schema::parts::nullable($s($g));
        $obj.optional($key, $doc, schema)
    }};
    ($obj:ident, $g:ident, $key:expr, $doc:expr, $type:ty, default($d:expr $(, $f:expr)?)) => {{
        let schema = $crate::config::schema::of::<$type>($g);
        let default: $type = $d;
        $obj.defaulted($key, $doc, schema, &default)
    }};
    ($obj:ident, $g:ident, $key:expr, $doc:expr, $type:ty, default($d:expr, $f:expr, $s:expr)) => {{
        let schema = $s($g);
        let default: $type = $d;
        $obj.defaulted($key, $doc, schema, &default)
    }};
    ($obj:ident, $g:ident, $key:expr, $doc:expr, $type:ty, flat) => {
        <$type as $crate::config::schema::Keys>::keys($obj, $g)
    };
    ($obj:ident, $g:ident, $key:expr, $doc:expr, $type:ty, named($name:expr, $how:ident $( ( $($arg:tt)* ) )?)) => {
        $crate::config::object::property!($obj, $g, $name, $doc, $type, $how $( ( $($arg)* ) )?)
    };
}

pub(crate) use {config, key, property};
