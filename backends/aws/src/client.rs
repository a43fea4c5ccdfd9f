//! The APIs of AWS: one client for each service and region, over the host's HTTP.
//!
//! What only reads goes as `GET`, what changes something as `POST`: so the host, which repeats the one and not the other, needs
//! to know nothing of actions.

use std::sync::Arc;

use dstack_backend_sdk::prelude::*;
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::config::{AwsConfig, is_region};
use crate::credentials::{Login, Signer};
use crate::params::Params;
use crate::{errors, xml};

/// Where services without regions are.
pub(crate) const HOME_REGION: &str = "us-east-1";

/// A service of AWS.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Service {
    Ec2,
    Sts,
    Iam,
    Quotas,
    LoadBalancing,
}

impl Service {
    /// The word in addresses and signatures.
    const fn word(self) -> &'static str {
        match self {
            Self::Ec2 => "ec2",
            Self::Sts => "sts",
            Self::Iam => "iam",
            Self::Quotas => "servicequotas",
            Self::LoadBalancing => "elasticloadbalancing",
        }
    }

    const fn version(self) -> &'static str {
        match self {
            Self::Ec2 => "2016-11-15",
            Self::Sts => "2011-06-15",
            Self::Iam => "2010-05-08",
            Self::LoadBalancing => "2015-12-01",
            Self::Quotas => "",
        }
    }

    fn url(self, region: &str) -> String {
        let domain = if region.starts_with("cn-") {
            "amazonaws.com.cn"
        } else {
            "amazonaws.com"
        };
        match self {
            Self::Iam => "https://iam.amazonaws.com".to_owned(),
            other => format!("https://{}.{region}.{domain}", other.word()),
        }
    }
}

/// All APIs with one login.
#[derive(Debug, Clone)]
pub(crate) struct Apis {
    login: Arc<Login>,
    endpoint: Option<String>,
}

impl Apis {
    pub(crate) fn new(config: &AwsConfig) -> Self {
        Self {
            login: Arc::new(Login::new(config.creds.clone())),
            endpoint: config.endpoint_url.clone(),
        }
    }

    /// EC2 of a region.
    pub(crate) fn ec2(&self, region: &str) -> Result<Api> {
        self.of(Service::Ec2, region)
    }

    /// A service in a region.
    pub(crate) fn of(&self, service: Service, region: &str) -> Result<Api> {
        if !is_region(region) {
            return Err(BackendError::invalid(format!(
                "{region:?} is no name of a region"
            )));
        }
        let url = match self.override_url() {
            Some(url) => url,
            None => service.url(region),
        };
        let map = ErrorMap::new()
            .judged(errors::kind)
            .read_by(xml::error)
            .code_at("/__type")
            .message_at("/Message")
            .auth_fields(self.login.fields().iter().copied());
        let signer = Signer {
            login: Arc::clone(&self.login),
            region: region.to_owned(),
            service: service.word(),
        };
        Ok(Api {
            rest: Rest::new(url).errors(map).signed(signer),
            service,
            region: region.to_owned(),
        })
    }

    /// The configured address, else that of the environment where it may be asked for.
    fn override_url(&self) -> Option<String> {
        const VARIABLE: &str = "AWS_ENDPOINT_URL";
        if let Some(url) = &self.endpoint {
            return Some(url.clone());
        }
        let values = dstack_backend_sdk::host::environment(&[VARIABLE]).ok()?;
        let url = values.get(VARIABLE)?.expose().trim().to_owned();
        (!url.is_empty()).then_some(url)
    }

    /// Who the credentials belong to.
    pub(crate) fn account(&self) -> Result<String> {
        #[derive(serde::Deserialize)]
        struct Answer {
            #[serde(rename = "GetCallerIdentityResult")]
            result: Identity,
        }
        #[derive(serde::Deserialize)]
        #[serde(rename_all = "PascalCase")]
        struct Identity {
            account: String,
        }
        let sts = self.of(Service::Sts, HOME_REGION)?;
        let answer: Answer = sts.read("GetCallerIdentity", &Params::new())?;
        Ok(answer.result.account)
    }
}

/// One service in one region.
#[derive(Debug, Clone)]
pub(crate) struct Api {
    rest: Rest,
    service: Service,
    region: String,
}

impl Api {
    /// Asks for something.
    ///
    /// # Errors
    /// By the provider's code.
    pub(crate) fn read<T: DeserializeOwned>(&self, action: &str, params: &Params) -> Result<T> {
        let mut call = self
            .rest
            .get("/")
            .query("Action", action)
            .query("Version", self.service.version());
        for (name, value) in params.pairs() {
            call = call.query(name, value);
        }
        let response = call.send().map_err(|error| self.named(action, error))?;
        xml::read(action, response.body())
    }

    /// As [`read`](Self::read), all pages of it: `items` takes the items and the next page's token out of each.
    pub(crate) fn read_all<T: DeserializeOwned, I>(
        &self,
        action: &str,
        params: &Params,
        items: impl Fn(T) -> (Vec<I>, Option<String>),
    ) -> Result<Vec<I>> {
        /// More pages than any account has.
        const MOST_PAGES: usize = 1000;
        let mut all = Vec::new();
        let mut next: Option<String> = None;
        for _ in 0..MOST_PAGES {
            let page = params.clone().maybe("NextToken", next.take());
            let (more, token) = items(self.read(action, &page)?);
            all.extend(more);
            match token.filter(|token| !token.is_empty()) {
                Some(token) => next = Some(token),
                None => return Ok(all),
            }
        }
        Err(BackendError::internal(format!(
            "{action}: the list has no end"
        )))
    }

    /// Changes something, and reads what came of it.
    ///
    /// # Errors
    /// By the provider's code. Nothing is repeated but what was refused unseen.
    pub(crate) fn change<T: DeserializeOwned>(&self, action: &str, params: &Params) -> Result<T> {
        let body = self.send(action, params)?;
        xml::read(action, &body)
    }

    /// Changes something whose answer does not matter.
    pub(crate) fn done(&self, action: &str, params: &Params) -> Result<()> {
        self.send(action, params).map(drop)
    }

    fn send(&self, action: &str, params: &Params) -> Result<Vec<u8>> {
        let mut pairs = vec![
            ("Action".to_owned(), action.to_owned()),
            ("Version".to_owned(), self.service.version().to_owned()),
        ];
        pairs.extend(params.pairs().iter().cloned());
        let call = self.rest.post("/").form(&pairs);
        let response = call.send().map_err(|error| self.named(action, error))?;
        Ok(response.body().to_vec())
    }

    /// Asks a service that speaks JSON; `target` is its word for the action.
    pub(crate) fn json<Q: Serialize, T: DeserializeOwned>(
        &self,
        target: &str,
        query: &Q,
    ) -> Result<T> {
        let action = target.rsplit('.').next().unwrap_or_default();
        let body = serde_json::to_vec(query)
            .map_err(|error| BackendError::internal(format!("{action}: {error}")))?;
        self.rest
            .post("/")
            .header("x-amz-target", target)
            .body("application/x-amz-json-1.1", body)
            .idempotent(true)
            .fetch()
            .map_err(|error| self.named(action, error))
    }

    /// Path and method say nothing: the action does.
    fn named(&self, action: &str, mut error: BackendError) -> BackendError {
        let message = &error.message;
        let why = ["GET /: ", "POST /: "]
            .iter()
            .find_map(|name| message.strip_prefix(name));
        error.message = format!(
            "{action} in {}: {}",
            self.region,
            why.unwrap_or(message.as_str())
        );
        error
    }
}

#[cfg(test)]
mod tests {
    use super::{Apis, Service};
    use crate::params::Params;
    use dstack_backend_sdk::ErrorKind;
    use dstack_backend_sdk::testing::{Host, Reply};
    use serde_json::json;

    fn apis(endpoint: Option<&str>) -> Apis {
        let config = json!({
            "creds": {"type": "access_key", "access_key": "AKIAHUSH", "secret_key": "hush-hush"}, "endpoint_url": endpoint,
        });
        Apis::new(&serde_json::from_value(config).unwrap())
    }

    fn refused(status: u16, code: &str) -> Reply {
        let text = format!(
            "<Response><Errors><Error><Code>{code}</Code><Message>AKIAHUSH may not</Message></Error></Errors></Response>"
        );
        Reply {
            body: text.into_bytes(),
            ..Reply::status(status)
        }
    }

    #[test]
    fn addresses_are_those_of_service_and_region() {
        assert_eq!(
            Service::Ec2.url("eu-west-1"),
            "https://ec2.eu-west-1.amazonaws.com"
        );
        assert_eq!(
            Service::Ec2.url("cn-north-1"),
            "https://ec2.cn-north-1.amazonaws.com.cn"
        );
        assert_eq!(Service::Iam.url("us-east-1"), "https://iam.amazonaws.com");
        let host = Host::new(|_| refused(400, "X"));
        let api = apis(Some("http://127.0.0.1:5555/"))
            .ec2("eu-west-1")
            .unwrap();
        api.done("Do", &Params::new().set("A", "1 2")).unwrap_err();
        let request = &host.requests()[0];
        assert_eq!(request.origin, "http://127.0.0.1:5555");
        assert_eq!(request.body, b"Action=Do&Version=2016-11-15&A=1%202");
        let login = request.header("authorization").unwrap();
        assert!(login.contains("/eu-west-1/ec2/aws4_request"), "{login}");
        assert!(apis(None).ec2("evil.example/").is_err());
    }

    #[test]
    fn throttling_is_waited_for_and_other_changes_are_not_repeated() {
        for (code, status, kind, times) in [
            ("RequestLimitExceeded", 503, ErrorKind::RateLimited, 3),
            ("InternalError", 500, ErrorKind::Transport, 1),
            (
                "InsufficientInstanceCapacity",
                500,
                ErrorKind::NoCapacity,
                1,
            ),
            ("AuthFailure", 401, ErrorKind::Auth, 1),
        ] {
            let host = Host::new(move |_| refused(status, code));
            let api = apis(None).ec2("us-east-1").unwrap();
            let error = api.done("RunInstances", &Params::new()).unwrap_err();
            assert_eq!(error.kind, kind, "{code}");
            assert_eq!(host.requests().len(), times, "{code}");
            assert!(
                error.message.starts_with("RunInstances in us-east-1: "),
                "{error}"
            );
            assert!(!error.message.contains("HUSH"), "{error}");
        }
        let host = Host::new(|_| refused(500, "InternalError"));
        let api = apis(None).ec2("us-east-1").unwrap();
        let read = api.read::<()>("DescribeX", &Params::new());
        assert_eq!(read.unwrap_err().kind, ErrorKind::Transport);
        assert_eq!(host.requests().len(), 3, "what only reads is repeated");
    }
}
