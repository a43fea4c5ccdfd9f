//! What operations take and give, for our OpenAPI document.

/// One of two answers.
pub(crate) struct Either<A, B>(std::marker::PhantomData<(A, B)>);
