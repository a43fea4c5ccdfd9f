//! The border: methods and fields that are not known, nonsense, panics, cancel, many calls at once, large messages.

use std::sync::atomic::Ordering;
use std::thread;
use std::time::{Duration, Instant};

use dstack_backend_types::methods::{self, GetOffersRequest, HealthRequest};
use dstack_backend_types::{
    BackendError, ErrorKind, Method, Requirements, ResourcesSpec, capability,
};
use serde_json::{Value, json};

use super::{Check, Stop, Verdict};
use crate::calls::{Caller, Ended};
use crate::cx::{Cx, ensure, fail, show_error};
use crate::http::{Fault, Which};
use crate::samples;

pub(super) const CHECKS: &[Check] = &[
    Check {
        id: "border.unknown_method",
        title: "a method that the plugin does not have is `unsupported`",
        why: "a newer host asks and goes on without",
        needs: None,
        run: unknown_method,
    },
    Check {
        id: "border.unknown_fields",
        title: "requests with fields that the plugin does not know are read",
        why: "a newer host sends more than this SDK knows",
        needs: None,
        run: unknown_fields,
    },
    Check {
        id: "border.nonsense",
        title: "nonsense is refused by a typed error, without a panic",
        why: "an error that cannot be read, or a panic, tells the host nothing it can act on",
        needs: None,
        run: nonsense,
    },
    Check {
        id: "border.panic",
        title: "nonsense from the provider is an error, not a panic",
        why: "proxies answer with pages, connections end in the middle; a panic loses what was being done",
        needs: None,
        run: nonsense_of_provider,
    },
    Check {
        id: "border.cancel",
        title: "a cancelled call ends within a second",
        why: "a deadline or a shutdown must not wait for a provider; a thread that stays away is lost",
        needs: None,
        run: cancel,
    },
    Check {
        id: "border.concurrency",
        title: "8 calls at once, each with its own answer",
        why: "the server makes up to 16 calls to one backend at the same time",
        needs: None,
        run: concurrency,
    },
    Check {
        id: "border.large",
        title: "large requests and replies",
        why: "listings of big accounts have megabytes",
        needs: None,
        run: large,
    },
];

const EXPORT: &str = "export the backend by `export_backend!`; never end the process or answer with bytes of your own";

fn typed(ended: Ended) -> Result<Result<Vec<u8>, BackendError>, Stop> {
    match ended.outcome {
        Ok(reply) => Ok(Ok(reply)),
        Err(Ok(error)) => Ok(Err(error)),
        Err(Err(bytes)) => Err(fail(
            "an error as JSON with kind and message",
            format!(
                "{:?}",
                String::from_utf8_lossy(&bytes)
                    .chars()
                    .take(100)
                    .collect::<String>()
            ),
            EXPORT,
        )),
    }
}

fn unknown_method(cx: &Cx<'_>) -> Verdict {
    let caller = cx.open()?;
    let absent: Vec<u32> = methods::ALL
        .iter()
        .filter(|(_, _, capability)| !cx.has(capability))
        .map(|(number, ..)| *number)
        .chain([5, 15, 9_999, u32::MAX])
        .collect();
    for method in absent {
        let answer = typed(caller.raw(method, b"{}".to_vec()))?;
        ensure(
            matches!(&answer, Err(error) if error.kind == ErrorKind::Unsupported),
            &format!("error `unsupported` for method {method}"),
            || {
                answer
                    .as_ref()
                    .map_or_else(show_error, |_| "success".to_owned())
            },
            "list every capability that is implemented in `export_backend!`, and no other",
        )?;
    }
    Ok(())
}

fn offers_request() -> Value {
    let request = GetOffersRequest {
        requirements: Requirements::of(ResourcesSpec::unconstrained()),
        full_offers: false,
        unallocated_resources: false,
        image: None,
    };
    serde_json::to_value(request).unwrap_or_default()
}

fn unknown_fields(cx: &Cx<'_>) -> Verdict {
    let caller = cx.open()?;
    let mut request = offers_request();
    let usual = typed(caller.raw(methods::GET_OFFERS, request.to_string().into_bytes()))?;
    for pointer in ["", "/requirements"] {
        if let Some(Value::Object(object)) = request.pointer_mut(pointer) {
            object.insert("x_newer".to_owned(), json!({"a": [1, null]}));
        }
    }
    let newer = typed(caller.raw(methods::GET_OFFERS, request.to_string().into_bytes()))?;
    ensure(
        usual.is_ok() == newer.is_ok(),
        "the same answer with unknown fields as without",
        || {
            newer
                .as_ref()
                .map_or_else(show_error, |_| "success".to_owned())
        },
        "use the request types of the SDK; they ignore what they do not know",
    )?;
    let health = typed(caller.raw(methods::HEALTH, br#"{"x_newer":1}"#.to_vec()))?;
    ensure(
        !matches!(&health, Err(error) if error.kind == ErrorKind::Invalid),
        "`health` with an unknown field answered",
        || {
            health
                .as_ref()
                .map_or_else(show_error, |_| "success".to_owned())
        },
        "use the request types of the SDK",
    )
}

fn nonsense(cx: &Cx<'_>) -> Verdict {
    let caller = cx.open()?;
    let deep = "[".repeat(5_000);
    let requests: [&[u8]; 7] = [
        b"",
        b"null",
        b"[]",
        b"{",
        b"\xff\xfe\x00",
        b"{\"requirements\":7}",
        deep.as_bytes(),
    ];
    let known = methods::ALL
        .iter()
        .filter(|(_, _, capability)| cx.has(capability));
    for (method, name, _) in known {
        for request in requests {
            // Methods without fields take anything that is an object.
            let answer = typed(caller.raw(*method, request.to_vec()))?;
            if let Err(error) = &answer {
                ensure(
                    error.kind == ErrorKind::Invalid,
                    &format!("error `invalid` from {name}"),
                    || show_error(error),
                    EXPORT,
                )?;
            } else {
                ensure(
                    serde_json::from_slice::<Value>(request).is_ok(),
                    &format!("error `invalid` from {name} for what is no JSON"),
                    || "success".to_owned(),
                    EXPORT,
                )?;
            }
        }
    }
    Ok(())
}

fn nonsense_of_provider(cx: &Cx<'_>) -> Verdict {
    let caller = cx.open()?;
    let mark = cx.session.mark();
    let offer = cx.pick(&caller)?;
    let data = cx.must_make(&caller, &samples::provider_ref())?;
    if cx.requests_since(mark) == 0 {
        return Err(super::skip_without_http());
    }
    for fault in [
        Fault::Garbage,
        Fault::Truncated,
        Fault::Status(200, None),
        Fault::Status(302, None),
    ] {
        for skip in 0..3 {
            cx.session
                .faults
                .set(fault.clone(), Which::All, skip, usize::MAX);
            // A fresh backend: an answer that was kept hides the next.
            let fresh = cx.open()?;
            let reference = samples::provider_ref();
            let made = cx.make(&fresh, &offer, &reference);
            let is_lost = made.is_err();
            let looked = cx.look(&fresh, &data);
            let listed = cx.list(&fresh, Requirements::of(ResourcesSpec::unconstrained()));
            let health = fresh.call(&HealthRequest {});
            let ended = [
                ("creating a machine", made.err()),
                ("update_provisioning_data", looked.err()),
                ("get_offers", listed.err()),
                ("health", health.err()),
            ];
            for (what, error) in ended {
                let is_panic = error
                    .as_ref()
                    .is_some_and(|error| error.kind == ErrorKind::Panic);
                ensure(
                    !is_panic,
                    &format!("an error from {what} for a reply that makes no sense ({fault:?})"),
                    || error.as_ref().map_or_else(String::new, show_error),
                    "no `unwrap`, `expect` or index on anything from outside: pass a typed error on",
                )?;
            }
            cx.session.faults.clear();
            if is_lost {
                cx.recover(&fresh, &offer, &reference);
            }
        }
    }
    Ok(())
}

fn cancel(cx: &Cx<'_>) -> Verdict {
    // Slow machines run this too, so the second has some slack.
    const LIMIT: Duration = Duration::from_millis(2_000);
    let offer = cx.pick(&cx.open()?)?;
    let data = cx.must_make(&cx.open()?, &samples::provider_ref())?;
    let caller = cx.open()?;
    let reference = samples::provider_ref();
    let mut requests = vec![
        (methods::GET_OFFERS, offers_request()),
        (methods::HEALTH, json!({})),
        (
            methods::UPDATE_PROVISIONING_DATA,
            json!({"provisioning_data": data, "project_key": samples::key()}),
        ),
        (
            methods::RUN_JOB,
            serde_json::to_value(cx.job(&offer, &reference)).unwrap_or_default(),
        ),
    ];
    if cx.has(capability::RESOURCE_LISTING) {
        requests.push((methods::LIST_RESOURCE_GROUPS, json!({})));
    }
    cx.session.waits_for_real.store(true, Ordering::SeqCst);
    cx.session.faults.all(Fault::Hang);
    let outcome = requests
        .into_iter()
        .try_for_each(|(method, request)| cancelled(&caller, method, &request, LIMIT));
    cx.session.waits_for_real.store(false, Ordering::SeqCst);
    cx.session.faults.clear();
    cx.recover(&caller, &offer, &reference);
    outcome
}

fn cancelled(caller: &Caller, method: u32, request: &Value, limit: Duration) -> Verdict {
    let name = methods::name_of(method).unwrap_or_default();
    let running = caller.start(method, request.to_string().into_bytes());
    let begun = Instant::now();
    // Until it waits in a service, or has ended without one.
    while !running.call.is_waiting() && begun.elapsed() < Duration::from_millis(300) {
        thread::sleep(Duration::from_millis(2));
    }
    let was_waiting = running.call.is_waiting();
    let told = Instant::now();
    running.call.cancel();
    let ended = running.wait();
    let took = told.elapsed();
    if !was_waiting {
        return Ok(());
    }
    ensure(
        took <= limit,
        &format!("{name} to end within a second of the cancel"),
        || format!("{} ms", took.as_millis()),
        "pass an error of kind `cancelled` on with `?`; ask `is_cancelled()` in loops; wait by `host::sleep` only",
    )?;
    if method == methods::LIST_RESOURCE_GROUPS {
        // A listing says what it could not list, and nobody hears it any more.
        return Ok(());
    }
    let answer = typed(ended)?;
    ensure(
        matches!(&answer, Err(error) if error.kind == ErrorKind::Cancelled),
        &format!("error `cancelled` from {name}"),
        || {
            answer
                .as_ref()
                .map_or_else(show_error, |_| "success".to_owned())
        },
        "pass the error on with `?`: turned into another kind, it looks like the provider's fault",
    )
}

fn concurrency(cx: &Cx<'_>) -> Verdict {
    const CALLS: usize = 8;
    let caller = cx.open()?;
    let offer = cx.pick(&caller)?;
    let calls: Vec<_> = (0..CALLS)
        .map(|_| {
            caller.start(
                GetOffersRequest::NUMBER,
                offers_request().to_string().into_bytes(),
            )
        })
        .collect();
    let mut replies = Vec::new();
    for running in calls {
        let mut ended = running.wait();
        let parts = std::mem::take(&mut ended.parts);
        let last = typed(ended)?.map_err(|error| {
            fail(
                format!("{CALLS} lists of offers at once"),
                show_error(&error),
                "guard what calls share by a lock",
            )
        })?;
        replies.push((parts, last));
    }
    let is_same = replies.windows(2).all(|pair| pair.first() == pair.last());
    ensure(
        is_same,
        "the same offers in each",
        || "different ones".to_owned(),
        "guard what calls share by a lock",
    )?;
    // Machines, with references of their own.
    let method = if cx.has(capability::CREATE_INSTANCE) {
        methods::CREATE_INSTANCE
    } else {
        methods::RUN_JOB
    };
    if method == methods::RUN_JOB {
        // Whether jobs may bring a login to their image's registry is known after the first.
        let first = cx.must_make(&caller, &samples::provider_ref())?;
        cx.terminate(&caller, &first)?;
    }
    let references: Vec<String> = (0..CALLS).map(|_| samples::provider_ref()).collect();
    let calls: Vec<_> = references
        .iter()
        .map(|reference| {
            let request = if method == methods::CREATE_INSTANCE {
                json!({"offer": offer, "config": samples::instance_config(reference)})
            } else {
                serde_json::to_value(cx.job(&offer, reference)).unwrap_or_default()
            };
            caller.start(method, request.to_string().into_bytes())
        })
        .collect();
    let answers: Vec<_> = calls.into_iter().map(crate::calls::Running::wait).collect();
    let mut ids = Vec::new();
    for (answer, reference) in answers.into_iter().zip(&references) {
        match typed(answer)? {
            // What was made is found again by its reference, and goes at the end.
            Ok(_) => ids.push(cx.must_make(&caller, reference)?.instance_id),
            Err(error)
                if matches!(
                    error.kind,
                    ErrorKind::NoCapacity | ErrorKind::Quota | ErrorKind::RateLimited
                ) => {}
            Err(error) => {
                return Err(fail(
                    format!("{CALLS} machines at once"),
                    show_error(&error),
                    "guard what calls share by a lock",
                ));
            }
        }
    }
    let made = ids.len();
    ids.sort();
    ids.dedup();
    ensure(
        ids.len() == made,
        "a machine for each reference",
        || format!("{} machines for {made} references", ids.len()),
        "look for a machine by the whole reference",
    )
}

fn large(cx: &Cx<'_>) -> Verdict {
    let caller = cx.open()?;
    let mut request = offers_request();
    if let Some(Value::Object(object)) = request.pointer_mut("/requirements") {
        let padding = "x".repeat(1 << 20);
        object.insert(
            "backend_options".to_owned(),
            json!([{"type": "conformance", "padding": padding}]),
        );
    }
    let usual = typed(caller.raw(
        methods::GET_OFFERS,
        offers_request().to_string().into_bytes(),
    ))?;
    let answer = typed(caller.raw(methods::GET_OFFERS, request.to_string().into_bytes()))?;
    ensure(
        usual.is_ok() == answer.is_ok(),
        "offers for a request of a megabyte",
        || {
            answer
                .as_ref()
                .map_or_else(show_error, |_| "success".to_owned())
        },
        EXPORT,
    )?;
    // Replies of the provider with 8 MiB of white space around them: still the same JSON.
    cx.session.faults.set(Fault::Padded, Which::Reading, 0, 3);
    let fresh = cx.open()?;
    let answer = cx.list(&fresh, Requirements::of(ResourcesSpec::unconstrained()));
    cx.session.faults.clear();
    ensure(
        usual.is_ok() == answer.is_ok(),
        "offers from a reply of 8 MiB",
        || {
            answer
                .as_ref()
                .map_or_else(show_error, |_| "success".to_owned())
        },
        "read the whole body; raise `max_reply_bytes` where a provider's listings are larger than 16 MiB",
    )
}
