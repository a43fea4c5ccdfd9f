//! Containers: what a provider that starts the job's image itself must be told.

use base64::Engine as _;
use dstack_backend_types::capability;

use super::{Check, Stop, Verdict, skip_without_http};
use crate::cx::{Cx, ensure, fail, is_without_login, show_error};
use crate::http::Exchange;
use crate::samples;

pub(super) const CHECKS: &[Check] = &[
    Check {
        id: "container.entrypoint",
        title: "an entry point of 2 KB arrives whole",
        why: "it brings the runner and all keys into the container; cut off, the job never starts",
        needs: None,
        run: entrypoint,
    },
    Check {
        id: "container.image",
        title: "image and registry login arrive",
        why: "private images are pulled by the provider",
        needs: None,
        run: image,
    },
];

/// Skips plugins with machines: their shim starts the container.
fn is_container(cx: &Cx<'_>) -> Result<(), Stop> {
    if cx.has(capability::CREATE_INSTANCE) {
        return Err(Stop::Skip(
            "machines, not containers: the shim starts the job's container".to_owned(),
        ));
    }
    Ok(())
}

/// Starts a job and returns what was sent.
fn sent(cx: &Cx<'_>, keys: Vec<String>) -> Result<Vec<Exchange>, Stop> {
    let caller = cx.open()?;
    let offer = cx.pick(&caller)?;
    let mut request = cx.job(&offer, &samples::provider_ref());
    request.extra_authorized_keys = keys;
    let mark = cx.session.mark();
    let data = cx.start(&caller, request).map_err(|error| {
        fail(
            "a container",
            show_error(&error),
            "see the exchange for what the provider said",
        )
    })?;
    let requests = cx.session.requests_since(mark);
    cx.terminate(&caller, &data)?;
    let requests: Vec<Exchange> = requests.into_iter().filter(Exchange::is_mutating).collect();
    if requests.is_empty() {
        return Err(skip_without_http());
    }
    Ok(requests)
}

/// The text of a request in every form in which a provider may want it: JSON inside JSON, base64, percent signs.
fn readings(exchange: &Exchange) -> Vec<String> {
    let text = String::from_utf8_lossy(&exchange.body).into_owned();
    let mut all = vec![
        text.replace('\\', ""),
        percent_encoding::percent_decode_str(&text.replace('+', " "))
            .decode_utf8_lossy()
            .into_owned(),
    ];
    let words = text.split(|c: char| !(c.is_ascii_alphanumeric() || "+/=_-".contains(c)));
    for word in words.filter(|word| word.len() >= 64) {
        let engines = [
            &base64::engine::general_purpose::STANDARD,
            &base64::engine::general_purpose::URL_SAFE_NO_PAD,
        ];
        all.extend(engines.iter().filter_map(|engine| {
            let bytes = engine.decode(word).ok()?;
            Some(String::from_utf8_lossy(&bytes).into_owned())
        }));
    }
    all.push(text);
    all
}

fn holds(requests: &[Exchange], wanted: &str) -> bool {
    requests
        .iter()
        .flat_map(readings)
        .any(|text| text.contains(wanted))
}

fn entrypoint(cx: &Cx<'_>) -> Verdict {
    is_container(cx)?;
    let mark = "conformance-last-key";
    let keys: Vec<String> = (0..16)
        .map(|number| {
            let comment = if number == 15 {
                mark.to_owned()
            } else {
                format!("conformance-{number}")
            };
            format!(
                "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAI{}{number:02} {comment}",
                "Q".repeat(80)
            )
        })
        .collect();
    let requests = sent(cx, keys.clone())?;
    for key in [keys.first(), keys.last()].into_iter().flatten() {
        ensure(
            holds(&requests, key),
            "every key in the container's commands",
            || {
                format!(
                    "{} is missing",
                    key.split(' ').next_back().unwrap_or_default()
                )
            },
            "give the commands of `boot::container_commands` to the provider whole, as its entry point or start command",
        )?;
    }
    let longest = requests
        .iter()
        .map(|exchange| exchange.body.len())
        .max()
        .unwrap_or(0);
    ensure(
        longest >= 2_048,
        "at least 2 KB sent",
        || format!("{longest} bytes"),
        "send the whole of the commands",
    )
}

fn image(cx: &Cx<'_>) -> Verdict {
    is_container(cx)?;
    let caller = cx.open()?;
    let offer = cx.pick(&caller)?;
    // A job with a login is refused before anything is made, or made like the others.
    let answer = caller.call(&cx.job(&offer, &samples::provider_ref()));
    if let Ok(reply) = &answer {
        cx.terminate(&caller, &reply.provisioning_data)?;
    }
    let mut expected = vec![("the job's image", samples::IMAGE)];
    if !is_without_login(&answer) {
        expected.push(("the registry's password", samples::REGISTRY_PASSWORD));
    }
    let requests = sent(cx, vec![samples::USER_KEY.to_owned()])?;
    for (what, wanted) in expected {
        ensure(
            holds(&requests, wanted),
            what,
            || "not in what was sent".to_owned(),
            "pass `job.image_name` and `job.registry_auth` on; where the provider has no login, refuse jobs that need one",
        )?;
    }
    Ok(())
}
