//! What the provider refuses, and what goes wrong on the way.

use std::collections::BTreeMap;
use std::time::Duration;

use dstack_backend_types::methods::{ConfigWithCreds, HealthRequest, ValidateConfigRequest};
use dstack_backend_types::{BackendError, ErrorKind, Requirements, ResourcesSpec};

use super::{Check, Stop, Verdict, skip_without_http};
use crate::calls::Caller;
use crate::cx::{Cx, ensure, fail, show, show_error};
use crate::http::{Fault, Which};
use crate::provider::Scenario;
use crate::samples;

pub(super) const CHECKS: &[Check] = &[
    Check {
        id: "faults.auth",
        title: "refused credentials are error `auth` with the fields at fault",
        why: "the user is told which line of the configuration to correct",
        needs: None,
        run: auth,
    },
    Check {
        id: "faults.rate_limit",
        title: "429 is waited for or told, with its `Retry-After`",
        why: "a backend that goes on asking gets the account banned",
        needs: None,
        run: rate_limit,
    },
    Check {
        id: "faults.server_error",
        title: "5xx is an error that the server tries again",
        why: "a provider in trouble is no reason to give a run up",
        needs: None,
        run: server_error,
    },
    Check {
        id: "faults.retries",
        title: "only requests that change nothing twice are repeated",
        why: "a repeated POST is a second machine",
        needs: None,
        run: retries,
    },
    Check {
        id: "faults.cut",
        title: "a cut connection is error `transport`",
        why: "the server tries again later instead of ending the run",
        needs: None,
        run: cut,
    },
    Check {
        id: "faults.slow",
        title: "slow answers are waited for",
        why: "creating a machine may take the provider half a minute",
        needs: None,
        run: slow,
    },
    Check {
        id: "faults.no_capacity",
        title: "no capacity at creation is error `no_capacity`, and leaves nothing behind",
        why: "the server then tries the next offer; any other kind ends the attempt",
        needs: None,
        run: no_capacity,
    },
    Check {
        id: "faults.no_capacity_late",
        title: "a machine that fails after it was accepted ends the attempt",
        why: "`provisioning` or `no_capacity` ends the wait at once; any other answer is asked again until the timeout",
        needs: None,
        run: no_capacity_late,
    },
    Check {
        id: "faults.quota",
        title: "a limit of the account is error `quota`",
        why: "the server tries the next offer and tells the user which limit to raise",
        needs: None,
        run: quota,
    },
    Check {
        id: "faults.partial",
        title: "a creation that fails half-way leaves nothing behind",
        why: "what is left is paid for; what the ledger knows is deleted by the server",
        needs: None,
        run: partial,
    },
];

fn everything() -> Requirements {
    Requirements::of(ResourcesSpec::unconstrained())
}

/// Runs something while all requests go wrong; `None` if it made no request.
fn during<T>(cx: &Cx<'_>, fault: Fault, run: impl FnOnce() -> T) -> Option<T> {
    cx.session.faults.all(fault);
    let answer = run();
    (cx.session.faults.clear() > 0).then_some(answer)
}

fn health(caller: &Caller) -> Result<(), BackendError> {
    caller.call(&HealthRequest {}).map(|_| ())
}

fn auth(cx: &Cx<'_>) -> Verdict {
    const REMEDY: &str = "turn 401 into `BackendError::auth(message, [paths of the credentials])`";
    let validate = ValidateConfigRequest {
        config: ConfigWithCreds(cx.plan.config.clone()),
        default_creds_enabled: false,
    };
    let configurator = cx.unconfigured()?;
    let refused = || Fault::Status(401, None);
    let validated = during(cx, refused(), || configurator.call(&validate));
    if let Some(answer) = &validated {
        let Err(error) = answer else {
            return Err(fail(
                "error `auth` from `configurator.validate` when the provider answers 401",
                "success",
                REMEDY,
            ));
        };
        let fields = error
            .details
            .get("fields")
            .and_then(serde_json::Value::as_array);
        ensure(
            error.kind == ErrorKind::Auth,
            "error `auth` from `configurator.validate`",
            || show_error(error),
            REMEDY,
        )?;
        ensure(
            fields.is_some_and(|fields| !fields.is_empty()),
            "the paths of the fields in `details.fields`",
            || show_error(error),
            REMEDY,
        )?;
    }
    let fresh = || cx.open();
    let caller = fresh()?;
    let checked = during(cx, refused(), || health(&caller));
    let caller = fresh()?;
    let listed = during(cx, refused(), || cx.list(&caller, everything()).map(|_| ()));
    let mut asked = validated.is_some();
    for (what, answer) in [("health", checked), ("get_offers", listed)] {
        let Some(answer) = answer else { continue };
        asked = true;
        ensure(
            matches!(&answer, Err(error) if error.kind == ErrorKind::Auth),
            &format!("error `auth` from `{what}`"),
            || show(&answer),
            REMEDY,
        )?;
    }
    if asked {
        Ok(())
    } else {
        Err(skip_without_http())
    }
}

fn rate_limit(cx: &Cx<'_>) -> Verdict {
    const MOST_REQUESTS: usize = 12;
    let caller = cx.open()?;
    let mark = cx.session.mark();
    let Some(answer) = during(cx, Fault::Status(429, Some(7)), || {
        health_or_offers(cx, &caller)
    }) else {
        return Err(skip_without_http());
    };
    let asked = cx.requests_since(mark);
    ensure(
        asked <= MOST_REQUESTS,
        "few requests while the provider answers 429",
        || format!("{asked} requests in one call"),
        "wait as long as `Retry-After` says, three or four times, then pass the error on",
    )?;
    let Err(error) = answer else {
        return Err(fail(
            "an error while the provider answers 429 for ever",
            "success",
            "pass the error on",
        ));
    };
    ensure(
        error.kind == ErrorKind::RateLimited,
        "error `rate_limited`",
        || show_error(&error),
        "`Response::ok` makes it of a reply with 429",
    )?;
    ensure(
        error.retry_after_ms == Some(7_000),
        "`retry_after_ms` 7000, as the header said",
        || format!("{:?}", error.retry_after_ms),
        "`Response::ok` reads the header",
    )
}

/// A call that only reads and that asks the provider.
fn health_or_offers(cx: &Cx<'_>, caller: &Caller) -> Result<(), BackendError> {
    let mark = cx.session.mark();
    let answer = health(caller);
    if cx.requests_since(mark) > 0 {
        return answer;
    }
    cx.list(caller, everything()).map(|_| ())
}

fn server_error(cx: &Cx<'_>) -> Verdict {
    let caller = cx.open()?;
    for status in [500, 503] {
        let Some(answer) = during(cx, Fault::Status(status, None), || {
            health_or_offers(cx, &caller)
        }) else {
            return Err(skip_without_http());
        };
        ensure(
            matches!(&answer, Err(error) if error.kind.is_temporary()),
            &format!("error `transport` while the provider answers {status}"),
            || show(&answer),
            "`Response::ok` makes it of any 5xx",
        )?;
    }
    Ok(())
}

fn retries(cx: &Cx<'_>) -> Verdict {
    let caller = cx.open()?;
    let offer = cx.pick(&caller)?;
    let mark = cx.session.mark();
    cx.must_make(&caller, &samples::provider_ref())?;
    let changes = cx
        .session
        .requests_since(mark)
        .iter()
        .filter(|exchange| exchange.is_mutating())
        .count();
    if changes == 0 {
        return Err(skip_without_http());
    }
    for fault in [Fault::Status(503, None), Fault::LostAnswer] {
        let mark = cx.session.mark();
        cx.session
            .faults
            .set(fault.clone(), Which::Mutating, 0, usize::MAX);
        // It may fail: what counts is what was sent.
        let reference = samples::provider_ref();
        drop(cx.make(&caller, &offer, &reference));
        cx.session.faults.clear();
        let mut sent: BTreeMap<(String, String, Vec<u8>), usize> = BTreeMap::new();
        let requests = cx.session.requests_since(mark);
        cx.recover(&caller, &offer, &reference);
        for exchange in requests.iter().filter(|exchange| exchange.method == "POST") {
            let same = (
                exchange.method.clone(),
                exchange.url.clone(),
                exchange.body.clone(),
            );
            *sent.entry(same).or_default() += 1;
        }
        let most = sent.into_iter().max_by_key(|(_, times)| *times);
        if let Some(((method, url, _), times)) = most {
            ensure(
                times <= 1,
                &format!("each POST sent once in a call ({fault:?})"),
                || {
                    format!(
                        "{method} {} {times} times",
                        url.split('?').next().unwrap_or_default()
                    )
                },
                "repeat GET, HEAD, PUT and DELETE; pass the error of a POST on: the server calls again, and then it is looked for",
            )?;
        }
    }
    Ok(())
}

fn cut(cx: &Cx<'_>) -> Verdict {
    let caller = cx.open()?;
    let Some(answer) = during(cx, Fault::Cut, || health_or_offers(cx, &caller)) else {
        return Err(skip_without_http());
    };
    ensure(
        matches!(&answer, Err(error) if error.kind == ErrorKind::Transport),
        "error `transport`",
        || show(&answer),
        "pass the error of `send` on with `?`",
    )
}

fn slow(cx: &Cx<'_>) -> Verdict {
    let caller = cx.open()?;
    let offer = cx.pick(&caller)?;
    cx.session
        .faults
        .set(Fault::Slow(Duration::from_secs(20)), Which::Mutating, 0, 1);
    let answer = cx.make(&caller, &offer, &samples::provider_ref());
    if cx.session.faults.clear() == 0 {
        return Err(skip_without_http());
    }
    ensure(
        answer.is_ok(),
        "the machine, though the provider took 20 s",
        || show(&answer),
        "leave time-outs to the call's deadline, 120 s for creations",
    )
}

/// Nothing may stand that did not stand before, but what the ledger knows.
fn nothing_left(
    cx: &Cx<'_>,
    caller: &Caller,
    reference: &str,
    before: Option<Vec<crate::provider::Resource>>,
) -> Verdict {
    cx.clean_up(caller, reference)?;
    let (Some(before), Some(after)) = (before, cx.inventory()) else {
        return Ok(());
    };
    let left: Vec<String> = after
        .iter()
        .filter(|resource| !before.contains(resource))
        .map(|resource| format!("{} {}", resource.kind, resource.id))
        .collect();
    ensure(
        left.is_empty(),
        "nothing new at the provider after a creation that failed",
        || left.join(", "),
        "declare side resources to the ledger before they are made; the server then deletes them by `delete_resource_group`",
    )
}

/// Makes a machine in a scenario and expects one of these kinds.
fn refused(cx: &Cx<'_>, scenario: Scenario, kinds: &[ErrorKind], remedy: &str) -> Verdict {
    let caller = cx.open()?;
    let offer = cx.pick(&caller)?;
    cx.need(scenario)?;
    let reference = samples::provider_ref();
    let before = cx.inventory();
    let answer = cx.make(&caller, &offer, &reference);
    cx.play(None);
    let words: Vec<String> = kinds
        .iter()
        .map(|kind| format!("`{}`", kind.as_str()))
        .collect();
    ensure(
        matches!(&answer, Err(error) if kinds.contains(&error.kind)),
        &format!("error {} at creation", words.join(" or ")),
        || show(&answer),
        remedy,
    )?;
    nothing_left(cx, &caller, &reference, before)
}

fn no_capacity(cx: &Cx<'_>) -> Verdict {
    refused(
        cx,
        Scenario::NoCapacity,
        &[ErrorKind::NoCapacity],
        "find how the provider says it (status, code, text) and turn it into `BackendError::no_capacity`",
    )
}

fn quota(cx: &Cx<'_>) -> Verdict {
    refused(
        cx,
        Scenario::Quota,
        &[ErrorKind::Quota],
        "find how the provider says it (status, code, text) and turn it into kind `quota`",
    )
}

fn no_capacity_late(cx: &Cx<'_>) -> Verdict {
    let caller = cx.open()?;
    let offer = cx.pick(&caller)?;
    cx.need(Scenario::NoCapacityLate)?;
    let reference = samples::provider_ref();
    let made = cx.make(&caller, &offer, &reference);
    let mut data = match made {
        Ok(data) => data,
        // Providers that tell at once are as good.
        Err(error) if error.kind == ErrorKind::NoCapacity => return Ok(()),
        Err(error) => {
            return Err(fail(
                "a machine, or `no_capacity`",
                show_error(&error),
                "see the exchange",
            ));
        }
    };
    for _ in 0..60 {
        match cx.look(&caller, &data) {
            Ok(now) if now.hostname.is_some() && now.ssh_port.is_some() => {
                return Err(Stop::Skip(
                    "the scenario lets the machine become ready all the same".to_owned(),
                ));
            }
            Ok(now) => data = now,
            Err(error) => {
                cx.play(None);
                ensure(
                    matches!(error.kind, ErrorKind::Provisioning | ErrorKind::NoCapacity),
                    "error `provisioning` or `no_capacity` from `update_provisioning_data`",
                    || show_error(&error),
                    "turn the provider's failed state into `BackendError::provisioning`, with its reason",
                )?;
                cx.terminate(&caller, &data)?;
                return cx.clean_up(&caller, &reference);
            }
        }
        cx.session.advance(Duration::from_secs(5));
    }
    Err(fail(
        "an error once the provider says that the machine failed",
        "the same data after 60 looks, 5 s apart",
        "look at the machine's state in `update_provisioning_data`: failed states are the end",
    ))
}

fn partial(cx: &Cx<'_>) -> Verdict {
    let caller = cx.open()?;
    let offer = cx.pick(&caller)?;
    let mark = cx.session.mark();
    let first = cx.must_make(&caller, &samples::provider_ref())?;
    let changes = cx
        .session
        .requests_since(mark)
        .iter()
        .filter(|exchange| exchange.is_mutating())
        .count();
    if changes == 0 {
        return Err(skip_without_http());
    }
    cx.terminate(&caller, &first)?;
    for failing in 0..changes.min(8) {
        for status in [400, 500] {
            let reference = samples::provider_ref();
            let before = cx.inventory();
            cx.session.faults.set(
                Fault::Status(status, None),
                Which::Mutating,
                failing,
                usize::MAX,
            );
            let answer = cx.make(&caller, &offer, &reference);
            cx.session.faults.clear();
            match answer {
                Ok(data) => {
                    cx.terminate(&caller, &data)?;
                }
                Err(error) if error.kind == ErrorKind::Panic => {
                    return Err(fail(
                        "a typed error",
                        show_error(&error),
                        "no `unwrap` on anything from outside",
                    ));
                }
                Err(_) => {}
            }
            nothing_left(cx, &caller, &reference, before)?;
        }
    }
    Ok(())
}
