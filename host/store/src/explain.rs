//! Every hot query uses an index: checked with EXPLAIN QUERY PLAN on the real schema.

use dstack_api::events::ListEventsRequest;
use dstack_engine::changes::Pipeline;
use dstack_engine::ids::{FleetId, ProjectId, UserId};
use jiff::Timestamp;
use uuid::Uuid;

use crate::events::Visible;
use crate::fleets::FleetsFilter;
use crate::instances::InstancesFilter;
use crate::runs::RunsFilter;
use crate::{DbError, Page, Store, StoreConfig, Tx, Value};
use crate::{
    cleanups, events, exports, fleets, guards, instances, jobs, lease, logs, probes, projects,
    runs, side_resources, ssh_hosts, tokens, traffic, users, views,
};

/// The steps of a query's plan, in words.
fn plan(tx: &mut dyn Tx, text: &str) -> Result<Vec<String>, DbError> {
    let text = crate::sql::render(text, tx.dialect()).into_owned();
    let params = (1..=64)
        .rev()
        .find(|n| text.contains(&format!("?{n}")))
        .unwrap_or(0);
    let mut steps = Vec::new();
    tx.query(
        &format!("EXPLAIN QUERY PLAN {text}"),
        &vec![Value::Null; params],
        &mut |mut row| {
            let (_, _, _) = (row.take::<i64>()?, row.take::<i64>()?, row.take::<i64>()?);
            steps.push(row.take::<String>()?);
            Ok(())
        },
    )?;
    Ok(steps)
}

async fn plans(texts: Vec<(String, String)>) -> Vec<(String, Vec<String>)> {
    let folder = tempfile::tempdir().unwrap();
    let store = Store::open(StoreConfig::file(folder.path().join("db"))).unwrap();
    store
        .write(move |tx| {
            texts
                .into_iter()
                .map(|(name, text)| Ok((name, plan(tx, &text)?)))
                .collect()
        })
        .await
        .unwrap()
}

fn one(name: &str, sql: crate::Sql) -> (String, String) {
    (name.to_owned(), sql.text().to_owned())
}

#[tokio::test]
async fn pipelines_and_views_never_scan_a_table() {
    let mut texts = Vec::new();
    for pipeline in Pipeline::ALL {
        let sql = lease::statements(pipeline);
        for (what, sql) in [
            ("claim", sql.claim),
            ("next", sql.next),
            ("waiting", sql.waiting),
            ("held", sql.held),
            ("extend", sql.extend),
            ("release", sql.release),
            ("hint", sql.hint),
            ("touch", sql.touch),
        ] {
            texts.push(one(&format!("{} {what}", pipeline.name()), sql));
        }
    }
    texts.extend([
        one("run by id", runs::GET),
        one("active runs of a fleet", runs::ACTIVE_OF_FLEET),
        one("job by id", jobs::GET),
        one("jobs of a run", jobs::OF_RUN),
        one("jobs of an instance", jobs::OF_INSTANCE),
        one("instance by id", instances::GET),
        one("instances of a fleet", instances::OF_FLEET),
        one("machines of a backend", instances::OF_BACKEND),
        one("instances of an own host", instances::OF_SSH_HOST),
        one("login of an own host", ssh_hosts::GET),
        one("numbers of a fleet", instances::NUMBERS),
        one("fleet by id", fleets::GET),
        one("fleets of a project", fleets::OF_PROJECT),
        one("room", guards::HAS_ROOM),
        one("unused", guards::UNUSED),
        one("wanted", guards::WANTED),
        one("living", guards::LIVING),
        one("used", guards::USED),
        one("newer", guards::NEWER),
        one("end of a log", logs::LAST),
        one("a log from a line", logs::FROM),
        one("a log from a time", logs::AFTER),
        one("a log backwards", logs::BEFORE),
        one("old logs", logs::DELETE),
        one("token", users::BY_TOKEN),
        one("project by name", projects::BY_NAME),
        one("role", projects::ROLE),
        one("cleanups", cleanups::DUE),
        one("side resources", side_resources::DUE),
        one("owner of side resources", side_resources::OWNED),
        one("importers of a fleet", exports::FLEET_IMPORTERS),
        one("use of a fleet", exports::MAY_USE),
        one("extra token", tokens::BY_HASH),
    ]);
    texts.push(one("waiting runs", runs::WAITING));
    texts.extend(probes::SQL.iter().map(|(name, sql)| one(name, *sql)));
    texts.extend(traffic::SQL.iter().map(|(name, sql)| one(name, *sql)));
    texts.extend(views::SQL.iter().map(|(name, sql)| one(name, *sql)));
    texts.extend(
        crate::gateways::SQL
            .iter()
            .map(|(name, sql)| one(name, *sql)),
    );
    texts.extend(
        crate::volumes::SQL
            .iter()
            .map(|(name, sql)| one(name, *sql)),
    );
    for (name, steps) in plans(texts).await {
        for step in steps {
            // The earliest due row is the first entry of its index.
            let first_entry = name.ends_with(" next") && step.contains("_due");
            assert!(!step.starts_with("SCAN") || first_entry, "{name}: {step}");
        }
    }
}

#[tokio::test]
async fn a_page_of_a_list_costs_a_page() {
    let page = Page {
        prev_at: Some(Timestamp::UNIX_EPOCH),
        prev_id: Some(Uuid::nil()),
        ..Page::default()
    };
    let project = ProjectId(Uuid::nil());
    let mut texts = Vec::new();
    for page in [
        Page::default(),
        page,
        Page {
            ascending: true,
            ..page
        },
    ] {
        for (only_active, user) in [
            (false, None),
            (true, None),
            (false, Some(UserId(Uuid::nil()))),
        ] {
            let filter = RunsFilter {
                only_active,
                user,
                page,
                ..RunsFilter::default()
            };
            let name = format!("runs, active {only_active}, user {}", user.is_some());
            texts.push((
                format!("{name}, all"),
                runs::list_query(&filter, None).as_text().to_owned(),
            ));
            texts.push((
                name,
                runs::list_query(&filter, Some(project))
                    .as_text()
                    .to_owned(),
            ));
        }
        for only_active in [false, true] {
            let filter = InstancesFilter {
                only_active,
                page,
                ..InstancesFilter::default()
            };
            let query = instances::list_query(&filter, None).as_text().to_owned();
            texts.push((format!("instances, active {only_active}, all"), query));
            let query = instances::list_query(&filter, Some(project))
                .as_text()
                .to_owned();
            texts.push((format!("instances, active {only_active}"), query));
            let filter = FleetsFilter {
                only_active,
                page,
                ..FleetsFilter::default()
            };
            let query = fleets::list_query(&filter, None).as_text().to_owned();
            texts.push((format!("fleets, active {only_active}, all"), query));
            let query = fleets::list_query(&filter, Some(project))
                .as_text()
                .to_owned();
            texts.push((format!("fleets, active {only_active}"), query));
        }
        let request = ListEventsRequest {
            within_projects: Some(vec![Uuid::nil()]),
            prev_recorded_at: page.prev_at,
            prev_id: page.prev_id,
            ascending: page.ascending,
            ..ListEventsRequest::default()
        };
        let query = events::list_query(&request, &Visible::All)
            .as_text()
            .to_owned();
        texts.push(("events of a project".to_owned(), query));
    }
    for (name, steps) in plans(texts).await {
        for step in steps {
            assert!(!step.contains("TEMP B-TREE"), "{name} sorts: {step}");
            assert!(
                !step.starts_with("SCAN") || step.contains("USING INDEX"),
                "{name} scans: {step}"
            );
        }
    }
}

#[tokio::test]
async fn several_fleets_are_read_by_index() {
    let filter = InstancesFilter {
        fleets: Some(vec![FleetId(Uuid::nil()), FleetId(Uuid::max())]),
        ..InstancesFilter::default()
    };
    let text = instances::list_query(&filter, None).as_text().to_owned();
    for (name, steps) in plans(vec![("instances of fleets".to_owned(), text)]).await {
        let found = steps.iter().any(|it| it.contains("i USING INDEX"));
        assert!(found, "{name}: {steps:?}");
    }
}
