//! Settings of stores outside of the server: logs at a provider, uploads in a bucket, and the accounts for them.

use std::path::{Path, PathBuf};

use dstack_backend_types::Secret;

use super::{Reader, SettingsError, Vars};

/// Where the server's own AWS account is found; the names are those of every AWS program.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AwsAccess {
    /// `AWS_ACCESS_KEY_ID` and `AWS_SECRET_ACCESS_KEY`.
    pub keys: Option<(String, Secret<String>)>,
    /// `AWS_SESSION_TOKEN`, for keys that hold for a time.
    pub session_token: Option<Secret<String>>,
    /// `AWS_PROFILE` (`default`): section of the files.
    pub profile: String,
    /// `AWS_SHARED_CREDENTIALS_FILE` (`~/.aws/credentials`).
    pub credentials_file: PathBuf,
    /// `AWS_CONFIG_FILE` (`~/.aws/config`).
    pub config_file: PathBuf,
    /// `AWS_REGION`, else `AWS_DEFAULT_REGION`.
    pub region: Option<String>,
    /// `AWS_ROLE_ARN` with `AWS_WEB_IDENTITY_TOKEN_FILE`: a role taken with a token of Kubernetes.
    pub web_identity: Option<(String, PathBuf)>,
    /// `AWS_CONTAINER_CREDENTIALS_FULL_URI`, or `..._RELATIVE_URI` at the place that ECS has.
    pub container_url: Option<String>,
    /// `AWS_CONTAINER_AUTHORIZATION_TOKEN`.
    pub container_token: Option<Secret<String>>,
    /// `AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE`.
    pub container_token_file: Option<PathBuf>,
    /// `AWS_EC2_METADATA_SERVICE_ENDPOINT`; none with `AWS_EC2_METADATA_DISABLED=true`.
    pub metadata_url: Option<String>,
    /// `AWS_ENDPOINT_URL_CLOUDWATCH_LOGS`, `AWS_ENDPOINT_URL_S3`, `AWS_ENDPOINT_URL_STS`, each else `AWS_ENDPOINT_URL`; none
    /// is the region's own.
    pub endpoints: AwsEndpoints,
}

/// Addresses of AWS services in place of their own.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct AwsEndpoints {
    /// CloudWatch Logs.
    pub logs: Option<String>,
    /// S3.
    pub s3: Option<String>,
    /// STS.
    pub sts: Option<String>,
}

/// Where the server's own Google account is found; the names are those of every Google program.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GoogleAccess {
    /// `GOOGLE_APPLICATION_CREDENTIALS`: a key file.
    pub key_file: Option<PathBuf>,
    /// Where `gcloud` leaves a login, below `CLOUDSDK_CONFIG` (`~/.config/gcloud`).
    pub login_file: PathBuf,
    /// `GCE_METADATA_HOST` (`metadata.google.internal`).
    pub metadata_host: String,
    /// `STORAGE_EMULATOR_HOST`: a server in place of Cloud Storage, which is asked without a login.
    pub storage_emulator: Option<String>,
}

/// Where logs of jobs are kept instead of in the server's folder or database.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum LogPlace {
    /// CloudWatch Logs.
    CloudWatch {
        /// `DSTACK_SERVER_CLOUDWATCH_LOG_GROUP`.
        group: String,
        /// `DSTACK_SERVER_CLOUDWATCH_LOG_REGION`; none is the account's.
        region: Option<String>,
    },
    /// Google Cloud Logging.
    Google {
        /// `DSTACK_SERVER_GCP_LOGGING_PROJECT`.
        project: String,
        /// `DSTACK_SERVER_GCP_LOGGING_ENDPOINT` (`https://logging.googleapis.com`).
        endpoint: String,
    },
    /// Fluent Bit, and Elasticsearch or `OpenSearch` for reading.
    FluentBit(FluentBit),
}

/// `DSTACK_SERVER_FLUENTBIT_*` and `DSTACK_SERVER_ELASTICSEARCH_*`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FluentBit {
    /// `..._HOST`.
    pub host: String,
    /// `..._PORT` (24224).
    pub port: u16,
    /// `..._PROTOCOL`: `forward` or `http`.
    pub protocol: FluentProtocol,
    /// `..._TAG_PREFIX` (`dstack`).
    pub tag_prefix: String,
    /// Where logs are read back; nowhere without.
    pub elastic: Option<Elastic>,
}

/// How records get to Fluent Bit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FluentProtocol {
    /// The protocol of Fluentd's `forward`.
    Forward,
    /// `POST` of JSON.
    Http,
}

/// Where records of Fluent Bit are found again.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Elastic {
    /// `DSTACK_SERVER_ELASTICSEARCH_HOST`: an HTTP address.
    pub url: String,
    /// `DSTACK_SERVER_ELASTICSEARCH_INDEX` (`dstack-logs`).
    pub index: String,
    /// `DSTACK_SERVER_ELASTICSEARCH_API_KEY`.
    pub api_key: Option<Secret<String>>,
}

/// Where uploaded code and files are kept instead of in the database.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum BlobPlace {
    /// A bucket of S3.
    S3 {
        /// `DSTACK_SERVER_S3_BUCKET`.
        bucket: String,
        /// `DSTACK_SERVER_S3_BUCKET_REGION`; none is the account's.
        region: Option<String>,
    },
    /// A bucket of Google Cloud Storage: `DSTACK_SERVER_GCS_BUCKET`.
    Google {
        /// Its name.
        bucket: String,
    },
}

/// Everything outside.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Outside {
    /// The AWS account.
    pub aws: AwsAccess,
    /// The Google account.
    pub google: GoogleAccess,
    /// Logs; none is here.
    pub logs: Option<LogPlace>,
    /// Uploads; none is here.
    pub blobs: Option<BlobPlace>,
}

const ECS: &str = "http://169.254.170.2";
const EC2: &str = "http://169.254.169.254";

pub(super) fn outside<V: Vars>(
    read: &Reader<'_, V>,
    home: &Path,
) -> Result<Outside, SettingsError> {
    Ok(Outside {
        aws: aws(read, home)?,
        google: google(read, home),
        logs: log_place(read)?,
        blobs: blob_place(read)?,
    })
}

fn aws<V: Vars>(read: &Reader<'_, V>, home: &Path) -> Result<AwsAccess, SettingsError> {
    let path = |name: &str, default: &str| {
        read.text(name)
            .map_or_else(|| home.join(default), PathBuf::from)
    };
    let key = read.text("AWS_ACCESS_KEY_ID");
    let both = |one: &'static str| -> Result<Option<String>, SettingsError> {
        match read.url(one)? {
            Some(url) => Ok(Some(url)),
            None => read.url("AWS_ENDPOINT_URL"),
        }
    };
    let no_metadata = read
        .text("AWS_EC2_METADATA_DISABLED")
        .is_some_and(|value| value.eq_ignore_ascii_case("true"));
    let metadata = read
        .url("AWS_EC2_METADATA_SERVICE_ENDPOINT")?
        .unwrap_or_else(|| EC2.to_owned());
    Ok(AwsAccess {
        keys: key.zip(read.secret("AWS_SECRET_ACCESS_KEY")),
        session_token: read.secret("AWS_SESSION_TOKEN"),
        profile: read.text_or("AWS_PROFILE", "default"),
        credentials_file: path("AWS_SHARED_CREDENTIALS_FILE", ".aws/credentials"),
        config_file: path("AWS_CONFIG_FILE", ".aws/config"),
        region: read
            .text("AWS_REGION")
            .or_else(|| read.text("AWS_DEFAULT_REGION")),
        web_identity: read
            .text("AWS_ROLE_ARN")
            .zip(read.text("AWS_WEB_IDENTITY_TOKEN_FILE").map(PathBuf::from)),
        container_url: match read.text("AWS_CONTAINER_CREDENTIALS_RELATIVE_URI") {
            Some(rest) => Some(format!("{ECS}{rest}")),
            None => read.url("AWS_CONTAINER_CREDENTIALS_FULL_URI")?,
        },
        container_token: read.secret("AWS_CONTAINER_AUTHORIZATION_TOKEN"),
        container_token_file: read
            .text("AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE")
            .map(PathBuf::from),
        metadata_url: (!no_metadata).then_some(metadata),
        endpoints: AwsEndpoints {
            logs: both("AWS_ENDPOINT_URL_CLOUDWATCH_LOGS")?,
            s3: both("AWS_ENDPOINT_URL_S3")?,
            sts: both("AWS_ENDPOINT_URL_STS")?,
        },
    })
}

fn google<V: Vars>(read: &Reader<'_, V>, home: &Path) -> GoogleAccess {
    let gcloud = read
        .text("CLOUDSDK_CONFIG")
        .map_or_else(|| home.join(".config/gcloud"), PathBuf::from);
    GoogleAccess {
        key_file: read
            .text("GOOGLE_APPLICATION_CREDENTIALS")
            .map(PathBuf::from),
        login_file: gcloud.join("application_default_credentials.json"),
        metadata_host: read.text_or("GCE_METADATA_HOST", "metadata.google.internal"),
        storage_emulator: read.text("STORAGE_EMULATOR_HOST").map(|host| {
            if host.contains("://") {
                host
            } else {
                format!("http://{host}")
            }
        }),
    }
}

/// The first that is named: CloudWatch, Google, Fluent Bit.
fn log_place<V: Vars>(read: &Reader<'_, V>) -> Result<Option<LogPlace>, SettingsError> {
    if let Some(group) = read.text("DSTACK_SERVER_CLOUDWATCH_LOG_GROUP") {
        return Ok(Some(LogPlace::CloudWatch {
            group,
            region: read.text("DSTACK_SERVER_CLOUDWATCH_LOG_REGION"),
        }));
    }
    if let Some(project) = read.text("DSTACK_SERVER_GCP_LOGGING_PROJECT") {
        let endpoint = read.url("DSTACK_SERVER_GCP_LOGGING_ENDPOINT")?;
        return Ok(Some(LogPlace::Google {
            project,
            endpoint: endpoint.unwrap_or_else(|| "https://logging.googleapis.com".to_owned()),
        }));
    }
    let Some(host) = read.text("DSTACK_SERVER_FLUENTBIT_HOST") else {
        return Ok(None);
    };
    let name = "DSTACK_SERVER_FLUENTBIT_PROTOCOL";
    let protocol = match read.text_or(name, "forward").to_lowercase().as_str() {
        "forward" => FluentProtocol::Forward,
        "http" => FluentProtocol::Http,
        other => {
            return Err(SettingsError {
                name,
                value: other.to_owned(),
                wanted: "forward or http",
            });
        }
    };
    let elastic = read
        .url("DSTACK_SERVER_ELASTICSEARCH_HOST")?
        .map(|url| Elastic {
            url: url.trim_end_matches('/').to_owned(),
            index: read.text_or("DSTACK_SERVER_ELASTICSEARCH_INDEX", "dstack-logs"),
            api_key: read.secret("DSTACK_SERVER_ELASTICSEARCH_API_KEY"),
        });
    Ok(Some(LogPlace::FluentBit(FluentBit {
        host,
        port: read.number("DSTACK_SERVER_FLUENTBIT_PORT", 24224, "a port")?,
        protocol,
        tag_prefix: read.text_or("DSTACK_SERVER_FLUENTBIT_TAG_PREFIX", "dstack"),
        elastic,
    })))
}

fn blob_place<V: Vars>(read: &Reader<'_, V>) -> Result<Option<BlobPlace>, SettingsError> {
    let s3 = read.text("DSTACK_SERVER_S3_BUCKET");
    let name = "DSTACK_SERVER_GCS_BUCKET";
    match (s3, read.text(name)) {
        (Some(_), Some(value)) => Err(SettingsError {
            name,
            value,
            wanted: "to be set beside DSTACK_SERVER_S3_BUCKET: uploads go to one bucket",
        }),
        (Some(bucket), None) => Ok(Some(BlobPlace::S3 {
            bucket,
            region: read.text("DSTACK_SERVER_S3_BUCKET_REGION"),
        })),
        (None, Some(bucket)) => Ok(Some(BlobPlace::Google { bucket })),
        (None, None) => Ok(None),
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::{BlobPlace, LogPlace};
    use crate::settings::{Outside, Settings};

    fn outside(pairs: &[(&str, &str)]) -> Result<Outside, String> {
        let vars: BTreeMap<String, String> = pairs
            .iter()
            .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()))
            .collect();
        Settings::from_env(&vars)
            .map(|it| it.outside)
            .map_err(|error| error.to_string())
    }

    #[test]
    fn the_first_store_that_is_named_keeps_the_logs() {
        let mut all = vec![("DSTACK_SERVER_FLUENTBIT_HOST", "collector")];
        let LogPlace::FluentBit(it) = outside(&all).unwrap().logs.unwrap() else {
            panic!("Fluent Bit")
        };
        assert_eq!((it.port, it.tag_prefix.as_str()), (24224, "dstack"));
        all.push(("DSTACK_SERVER_GCP_LOGGING_PROJECT", "p"));
        assert!(matches!(
            outside(&all).unwrap().logs,
            Some(LogPlace::Google { .. })
        ));
        all.push(("DSTACK_SERVER_CLOUDWATCH_LOG_GROUP", "g"));
        assert!(matches!(
            outside(&all).unwrap().logs,
            Some(LogPlace::CloudWatch { region: None, .. })
        ));
        assert_eq!(outside(&[]).unwrap().logs, None);
    }

    #[test]
    fn uploads_go_to_one_bucket() {
        let both = [
            ("DSTACK_SERVER_S3_BUCKET", "a"),
            ("DSTACK_SERVER_GCS_BUCKET", "b"),
        ];
        assert!(outside(&both).unwrap_err().contains("one bucket"));
        assert!(matches!(
            outside(&both[..1]).unwrap().blobs,
            Some(BlobPlace::S3 { .. })
        ));
        assert!(matches!(
            outside(&both[1..]).unwrap().blobs,
            Some(BlobPlace::Google { .. })
        ));
    }

    #[test]
    fn secrets_of_accounts_are_not_printed() {
        let it = outside(&[
            ("AWS_ACCESS_KEY_ID", "AKID"),
            ("AWS_SECRET_ACCESS_KEY", "hush-aws"),
            ("DSTACK_SERVER_FLUENTBIT_HOST", "h"),
            ("DSTACK_SERVER_ELASTICSEARCH_HOST", "http://e:9200/"),
            ("DSTACK_SERVER_ELASTICSEARCH_API_KEY", "hush-elastic"),
        ])
        .unwrap();
        let text = format!("{it:?}");
        assert!(text.contains("AKID") && !text.contains("hush"), "{text}");
        assert!(text.contains("http://e:9200\""), "{text}");
    }
}
