//! Which codes are which kind of error.
//!
//! Source: "Error codes for the Amazon EC2 API", "Common errors" of the other services, and the retry behaviour of the AWS SDKs
//! and Tools Reference Guide (which codes mean throttling and which are transient).

use dstack_backend_sdk::{BackendError, ErrorKind};

/// The kind of a status with a code; `None` leaves it to the usual meaning of the status.
pub(crate) fn kind(_status: u16, code: &str) -> Option<ErrorKind> {
    // JSON services put the name of a namespace before it.
    let code = code.rsplit('#').next().unwrap_or_default();
    Some(match code {
        "InsufficientInstanceCapacity"
        | "InsufficientHostCapacity"
        | "InsufficientReservedInstanceCapacity"
        | "InsufficientCapacity"
        | "InsufficientCapacityOnHost"
        | "ReservationCapacityExceeded"
        | "UnfulfillableCapacity"
        | "SpotMaxPriceTooLow"
        | "Unsupported" => ErrorKind::NoCapacity,
        "AuthFailure"
        | "UnauthorizedOperation"
        | "InvalidClientTokenId"
        | "SignatureDoesNotMatch"
        | "UnrecognizedClientException"
        | "IncompleteSignature"
        | "MissingAuthenticationToken"
        | "InvalidAccessKeyId"
        | "ExpiredToken"
        | "ExpiredTokenException"
        | "RequestExpired"
        | "AccessDenied"
        | "AccessDeniedException"
        | "OptInRequired"
        | "Blocked"
        | "PendingVerification" => ErrorKind::Auth,
        "RequestLimitExceeded"
        | "Throttling"
        | "ThrottlingException"
        | "ThrottledException"
        | "RequestThrottled"
        | "RequestThrottledException"
        | "EC2ThrottledException"
        | "TooManyRequestsException"
        | "SlowDown"
        | "BandwidthLimitExceeded"
        | "PriorRequestNotComplete"
        | "TransactionInProgressException" => ErrorKind::RateLimited,
        "InternalError"
        | "InternalFailure"
        | "ServiceUnavailable"
        | "Unavailable"
        | "RequestTimeout"
        | "RequestTimeoutException" => ErrorKind::Transport,
        "NoSuchEntity" | "NoSuchResourceException" | "InvalidPlacementGroup.Unknown" => {
            ErrorKind::NotFound
        }
        "InvalidPlacementGroup.InUse" => ErrorKind::PlacementGroupInUse,
        _ if code.ends_with("LimitExceeded")
            || code == "MaxSpotInstanceCountExceeded"
            || code.starts_with("TooMany") =>
        {
            ErrorKind::Quota
        }
        _ if code.ends_with("NotFound") => ErrorKind::NotFound,
        _ => return None,
    })
}

/// The provider's code of an error, if it has one.
pub(crate) fn code(error: &BackendError) -> &str {
    let code = error.details.get("code").and_then(|code| code.as_str());
    code.unwrap_or_default()
        .rsplit('#')
        .next()
        .unwrap_or_default()
}

/// Whether it is this error of the provider.
pub(crate) fn is(error: &BackendError, codes: &[&str]) -> bool {
    codes.contains(&code(error))
}

/// Whether the call must end with it, since nothing is known of what was asked or everything else would fail as well.
pub(crate) fn ends_call(error: &BackendError) -> bool {
    matches!(
        error.kind,
        ErrorKind::Cancelled
            | ErrorKind::Timeout
            | ErrorKind::Transport
            | ErrorKind::RateLimited
            | ErrorKind::Unsupported
    )
}

#[cfg(test)]
mod tests {
    use super::kind;
    use dstack_backend_sdk::ErrorKind;

    #[test]
    fn codes_become_kinds() {
        for (code, expected) in [
            ("InsufficientInstanceCapacity", Some(ErrorKind::NoCapacity)),
            ("VcpuLimitExceeded", Some(ErrorKind::Quota)),
            ("TooManyLoadBalancers", Some(ErrorKind::Quota)),
            ("RequestLimitExceeded", Some(ErrorKind::RateLimited)),
            ("TooManyRequestsException", Some(ErrorKind::RateLimited)),
            ("AuthFailure", Some(ErrorKind::Auth)),
            ("com.amazon#AccessDeniedException", Some(ErrorKind::Auth)),
            ("InvalidInstanceID.NotFound", Some(ErrorKind::NotFound)),
            ("LoadBalancerNotFound", Some(ErrorKind::NotFound)),
            ("InternalError", Some(ErrorKind::Transport)),
            ("InvalidParameterValue", None),
        ] {
            assert_eq!(kind(400, code), expected, "{code}");
        }
    }
}
