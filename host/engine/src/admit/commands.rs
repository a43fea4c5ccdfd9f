//! The command line, image and probes of a job.

use dstack_api::config::{ReplicaGroup, RunBase, RunConfiguration, ServiceConfiguration};
use dstack_api::jobs::{HttpHeader, HttpMethod, ProbeSpec, ProbeType};

use super::{AdmitError, ImageFacts, JobDefaults};

/// Whether the job has a Docker daemon of its own.
pub(super) fn docker(base: &RunBase, group: Option<&ReplicaGroup>) -> bool {
    base.docker == Some(true) || group.is_some_and(|group| group.docker == Some(true))
}

/// The user's image, if there is one.
fn own_image<'a>(base: &'a RunBase, group: Option<&'a ReplicaGroup>) -> Option<&'a str> {
    group
        .and_then(|group| group.image.as_deref())
        .or(base.image.as_deref())
}

/// The image the job runs in.
pub(super) fn image(
    base: &RunBase,
    group: Option<&ReplicaGroup>,
    defaults: &JobDefaults,
) -> String {
    let nvcc = base.nvcc == Some(true) || group.is_some_and(|group| group.nvcc == Some(true));
    match own_image(base, group) {
        Some(image) => image.to_owned(),
        None if docker(base, group) => defaults.image_docker.clone(),
        None if nvcc => defaults.image_devel.clone(),
        None => defaults.image.clone(),
    }
}

/// The arguments of a job's process, program first.
pub(super) fn of_job(
    configuration: &RunConfiguration,
    commands: &[String],
    group: Option<&ReplicaGroup>,
    defaults: &JobDefaults,
    image: Option<&ImageFacts>,
) -> Result<Vec<String>, AdmitError> {
    let base = configuration.base();
    if let Some(entrypoint) = &base.entrypoint {
        let mut args =
            split(entrypoint).ok_or_else(|| AdmitError::Entrypoint(entrypoint.clone()))?;
        args.extend(commands.iter().cloned());
        return Ok(args);
    }
    let own = own_image(base, group).is_some();
    let mut lines = Vec::new();
    if docker(base, group) {
        lines.push("start-dockerd".to_owned());
    } else if !own {
        let python = group.and_then(|group| group.python).or(base.python);
        lines.push(python_environment(
            python.map_or(defaults.python.as_str(), |version| version.as_str()),
        ));
    }
    if let RunConfiguration::DevEnvironment(_) = configuration {
        lines.extend(base.setup.iter().cloned());
        lines.extend(commands.iter().cloned());
        lines.push("echo 'The environment is ready: connect with `ssh <run name>`.'".to_owned());
        lines.push("tail -f /dev/null".to_owned());
    } else if commands.is_empty() {
        return Ok(image.map(|facts| facts.command.clone()).unwrap_or_default());
    } else {
        lines.extend(commands.iter().cloned());
    }
    let shell = match base.shell.as_deref() {
        Some("sh") => "/bin/sh",
        Some("bash") => "/bin/bash",
        Some(path) => path,
        None if own => "/bin/sh",
        None => "/bin/bash",
    };
    Ok(vec![
        shell.to_owned(),
        "-i".to_owned(),
        "-c".to_owned(),
        join(&lines),
    ])
}

/// An environment of the wanted Python where the image has the tool for it; elsewhere the job goes on without.
fn python_environment(version: &str) -> String {
    format!(
        "{{ command -v uv > /dev/null 2>&1 && uv venv -q --seed -p {version} /dstack/venv \
         && . /dstack/venv/bin/activate || :; }}"
    )
}

/// One line for the shell: each command must succeed before the next begins.
fn join(lines: &[String]) -> String {
    let trimmed = lines
        .iter()
        .map(|line| line.trim())
        .filter(|line| !line.is_empty());
    let grouped: Vec<String> = trimmed
        .map(|line| {
            // `a & && b` is no shell; `{ a & } && b` is.
            let background = line.ends_with('&') && !line.ends_with("&&");
            if background {
                format!("{{ {line} }}")
            } else {
                line.to_owned()
            }
        })
        .collect();
    grouped.join(" && ")
}

/// Splits a command line as a shell does: blanks, quotes, backslashes. `None` for an open quote.
pub fn split(text: &str) -> Option<Vec<String>> {
    let mut out = Vec::new();
    let mut word: Option<String> = None;
    let mut quote: Option<char> = None;
    let mut chars = text.chars();
    while let Some(c) = chars.next() {
        match (quote, c) {
            (Some('\''), '\'') | (Some('"'), '"') => quote = None,
            (Some('"'), '\\') => {
                let next = chars.next()?;
                let word = word.get_or_insert_default();
                if !matches!(next, '"' | '\\') {
                    word.push('\\');
                }
                word.push(next);
            }
            (Some(_), c) => word.get_or_insert_default().push(c),
            (None, '\'' | '"') => {
                quote = Some(c);
                word.get_or_insert_default();
            }
            (None, '\\') => word.get_or_insert_default().push(chars.next()?),
            (None, c) if c.is_whitespace() => out.extend(word.take()),
            (None, c) => word.get_or_insert_default().push(c),
        }
    }
    out.extend(word);
    quote.is_none().then_some(out)
}

/// The probes of a service's replica; a chat model without any gets one that asks it a question.
pub(super) fn probes(service: &ServiceConfiguration) -> Vec<ProbeSpec> {
    let spec =
        |url: String, method, body: Option<String>, headers: Vec<HttpHeader>, timeout| ProbeSpec {
            kind: ProbeType::Http,
            url,
            method,
            headers,
            body,
            timeout,
            interval: 15,
            ready_after: 1,
            until_ready: false,
        };
    match (&service.probes, &service.model) {
        (Some(list), _) => list
            .iter()
            .map(|probe| {
                let headers = probe
                    .headers
                    .iter()
                    .map(|h| HttpHeader {
                        name: h.name.clone(),
                        value: h.value.clone(),
                    })
                    .collect();
                let method = probe
                    .method
                    .and_then(|m| m.as_str().parse().ok())
                    .unwrap_or(HttpMethod::Get);
                let seconds = |value: Option<u32>, default| value.unwrap_or(default);
                let url = probe.url.clone().unwrap_or_else(|| "/".into());
                ProbeSpec {
                    interval: seconds(probe.interval, 15),
                    ready_after: probe.ready_after.unwrap_or(1),
                    until_ready: probe.until_ready.unwrap_or(false),
                    ..spec(
                        url,
                        method,
                        probe.body.clone(),
                        headers,
                        seconds(probe.timeout, 10),
                    )
                }
            })
            .collect(),
        (None, Some(dstack_api::config::ServiceModel::Openai(model))) => {
            let body = serde_json::json!({
                "model": model.name,
                "messages": [{"role": "user", "content": "hi"}],
                "max_tokens": 1,
            });
            let json = HttpHeader {
                name: "Content-Type".into(),
                value: "application/json".into(),
            };
            let url = format!("{}/chat/completions", model.prefix);
            vec![spec(
                url,
                HttpMethod::Post,
                Some(body.to_string()),
                vec![json],
                30,
            )]
        }
        (None, _) => Vec::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::{join, split};

    #[test]
    fn a_command_in_the_background_is_grouped() {
        let lines = ["a &", " b ", "c &&"].map(str::to_owned);
        assert_eq!(join(&lines), "{ a & } && b && c &&");
    }

    #[test]
    fn splits_like_a_shell() {
        let words = |text| split(text).unwrap();
        assert_eq!(
            words(r#"a 'b c' "d\" \e" f\ g ''"#),
            ["a", "b c", "d\" \\e", "f g", ""]
        );
        assert_eq!(split("a 'b"), None);
        assert_eq!(words("  "), Vec::<String>::new());
    }
}
