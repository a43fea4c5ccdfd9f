use dstack_api::events::{EventTargetType, ListEventsRequest};
use dstack_api::projects::ProjectRole;
use dstack_api::runs::RunStatus;
use dstack_api::users::GlobalRole;
use dstack_engine::changes::{Changes, EventRow, EventTarget, TargetKind};
use dstack_engine::ids::{JobId, ProjectId, UserId};
use dstack_store::events::{NewEvent, NewTarget, Visible};
use dstack_store::projects::ProjectsFilter;
use dstack_store::repos::{CodeRow, RepoRow};
use dstack_store::runs::RunsFilter;
use dstack_store::secrets::SecretRow;
use dstack_store::users::{PublicKeyRow, UsersFilter, token_hash};
use dstack_store::{
    DbError, Page, Sealed, apply, archives, backends, events, jobs, meta, projects, repos, runs,
    secrets, users,
};
use uuid::Uuid;

use crate::rows::{run_with_job, small_world};
use crate::support::{at, open, project, seed, user};

#[tokio::test]
async fn pages_of_runs_follow_each_other_without_gaps_in_both_directions() {
    let test = open();
    test.write(|tx| {
        let mut world = small_world(tx)?;
        let second = project("second", 2, world.user);
        projects::insert(tx, &second)?;
        for number in 0..30_u128 {
            world.project = if number % 3 == 0 {
                second.id
            } else {
                ProjectId(Uuid::from_u128(1))
            };
            let (mut run, _) = run_with_job(&world, 100 + number);
            // Several share a second, so that the order by id matters.
            run.submitted_at = at(i64::try_from(number / 4).unwrap());
            if number % 2 == 0 {
                run.status = RunStatus::Done;
            }
            runs::insert(tx, &run, at(100))?;
        }
        for ascending in [false, true] {
            for projects in [
                None,
                Some(vec![second.id]),
                Some(vec![ProjectId(Uuid::from_u128(1)), second.id]),
            ] {
                let whole = RunsFilter {
                    projects: projects.clone(),
                    page: Page {
                        limit: 100,
                        ascending,
                        ..Page::default()
                    },
                    ..RunsFilter::default()
                };
                let all = runs::list(tx, &whole)?;
                assert_eq!(
                    all.len(),
                    if projects.as_ref().is_some_and(|it| it.len() == 1) {
                        10
                    } else {
                        30
                    }
                );
                let mut sorted = all.clone();
                sorted.sort_by(|a, b| {
                    b.submitted_at
                        .cmp(&a.submitted_at)
                        .then(a.id.0.cmp(&b.id.0))
                });
                if ascending {
                    sorted.reverse();
                }
                assert_eq!(all, sorted);
                let mut paged = Vec::new();
                let mut page = Page {
                    limit: 7,
                    ascending,
                    ..Page::default()
                };
                loop {
                    let part = runs::list(
                        tx,
                        &RunsFilter {
                            page,
                            ..whole.clone()
                        },
                    )?;
                    let Some(last) = part.last() else { break };
                    page.prev_at = Some(last.submitted_at);
                    page.prev_id = Some(last.id.0);
                    paged.extend(part);
                }
                assert_eq!(paged, all);
            }
        }
        let active = RunsFilter {
            only_active: true,
            ..RunsFilter::default()
        };
        assert_eq!(runs::list(tx, &active)?.len(), 15);
        let none = RunsFilter {
            projects: Some(Vec::new()),
            ..RunsFilter::default()
        };
        assert!(runs::list(tx, &none)?.is_empty());
        let repo = RunsFilter {
            repo: Some("other".to_owned()),
            ..RunsFilter::default()
        };
        assert!(runs::list(tx, &repo)?.is_empty());
        Ok(())
    })
    .await
    .unwrap();
}

#[tokio::test]
async fn records_of_jobs_carry_json_only_for_the_newest_submissions() {
    let test = open();
    test.write(|tx| {
        let world = small_world(tx)?;
        runs::insert(tx, &world.run, at(100))?;
        for submission in 0..5 {
            for job_num in 0..2 {
                let mut job = world.job.clone();
                job.id = JobId(Uuid::from_u128(u128::from(
                    1000 + submission * 10 + job_num,
                )));
                job.submission_num = submission;
                job.job_num = job_num;
                job.provisioning_data = Some(std::sync::Arc::new(crate::rows::parsed(
                    crate::rows::machine(1.0),
                )));
                jobs::insert(tx, &job, at(100))?;
            }
        }
        for (limit, with_machine) in [(0, 1), (1, 1), (2, 2), (10, 5)] {
            let records = jobs::records(tx, &[world.run.id], limit)?
                .remove(&world.run.id)
                .unwrap();
            assert_eq!(records.len(), 10, "costs need all");
            for (index, record) in records.iter().enumerate() {
                let submission = u32::try_from(index % 5).unwrap();
                assert_eq!(
                    (record.job_num, record.submission_num),
                    (u32::try_from(index / 5).unwrap(), submission)
                );
                assert_eq!(record.spec.is_some(), submission == 4);
                assert_eq!(
                    record.provisioning_data.is_some(),
                    submission >= 5 - with_machine,
                    "limit {limit}"
                );
            }
        }
        Ok(())
    })
    .await
    .unwrap();
}

#[tokio::test]
async fn users_are_found_by_token_name_and_pattern() {
    let test = open();
    test.write(|tx| {
        let (admin, main) = seed(tx)?;
        let ann = user("Ann_1", 2);
        users::insert(tx, &ann)?;
        assert_eq!(
            users::by_token_hash(tx, &token_hash("Ann_1"))?.unwrap(),
            ann
        );
        assert_eq!(
            token_hash("abc"),
            "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"
        );
        assert!(
            users::by_name(tx, "ann_1")?.is_none(),
            "names are looked up with their case"
        );
        assert_eq!(users::by_name_any_case(tx, "ann_1")?.unwrap().id, ann.id);
        assert!(
            tx.attempt(|tx| users::insert(tx, &user("ANN_1", 3)))
                .unwrap_err()
                .is_conflict()
        );
        for (pattern, found) in [("n_", 1), ("N_1", 1), ("n%", 0), ("", 2)] {
            let filter = UsersFilter {
                name_part: Some(pattern.to_owned()),
                ..UsersFilter::default()
            };
            assert_eq!(users::list(tx, &filter)?.len(), found, "{pattern}");
            assert_eq!(
                users::count(tx, &filter)?,
                u64::try_from(found).unwrap(),
                "{pattern}"
            );
        }
        users::update(tx, ann.id, GlobalRole::Admin, None, false)?;
        assert!(
            users::by_token_hash(tx, &token_hash("Ann_1"))?.is_none(),
            "not active"
        );
        users::update(tx, ann.id, GlobalRole::Admin, None, true)?;
        users::set_token(tx, ann.id, &Sealed::new("new"), &token_hash("new"))?;
        assert!(users::by_token_hash(tx, &token_hash("Ann_1"))?.is_none());
        users::set_ssh_key(tx, ann.id, "ssh-ed25519 BBBB", &Sealed::new("private"))?;
        let stored = users::by_token_hash(tx, &token_hash("new"))?.unwrap();
        assert_eq!(
            (stored.email, stored.ssh_public_key.as_deref()),
            (None, Some("ssh-ed25519 BBBB"))
        );

        projects::set_member(tx, main, ann.id, ProjectRole::User)?;
        users::delete(tx, ann.id, "_deleted_1_x")?;
        assert!(users::by_token_hash(tx, &token_hash("new"))?.is_none());
        assert!(projects::role(tx, main, ann.id)?.is_none());
        assert_eq!(
            users::get(tx, ann.id)?.unwrap().original_name.as_deref(),
            Some("Ann_1")
        );
        users::insert(tx, &user("Ann_1", 4))?;
        assert!(users::get(tx, admin)?.is_some());

        let key = PublicKeyRow {
            id: Uuid::from_u128(9),
            user_id: admin,
            added_at: at(5),
            name: "laptop".to_owned(),
            kind: "ssh-ed25519".to_owned(),
            fingerprint: "SHA256:x".to_owned(),
            public_key: "ssh-ed25519 CCCC".to_owned(),
        };
        users::add_public_key(tx, &key)?;
        let twin = PublicKeyRow {
            id: Uuid::from_u128(10),
            ..key.clone()
        };
        let refused = tx.attempt(|tx| users::add_public_key(tx, &twin));
        assert!(refused.unwrap_err().is_conflict());
        assert_eq!(users::public_keys(tx, admin)?, [key]);
        assert!(users::delete_public_key(tx, admin, Uuid::from_u128(9))?);
        assert!(!users::delete_public_key(tx, admin, Uuid::from_u128(9))?);
        Ok(())
    })
    .await
    .unwrap();
}

#[tokio::test]
async fn projects_show_members_in_the_order_in_which_they_joined() {
    let test = open();
    test.write(|tx| {
        let (admin, main) = seed(tx)?;
        let (zoe, bob) = (user("zoe", 2), user("bob", 3));
        users::insert(tx, &zoe)?;
        users::insert(tx, &bob)?;
        projects::set_member(tx, main, zoe.id, ProjectRole::User)?;
        projects::set_member(tx, main, bob.id, ProjectRole::User)?;
        projects::set_member(tx, main, zoe.id, ProjectRole::Manager)?;
        let members: Vec<_> = projects::members(tx, main)?
            .into_iter()
            .map(|(user, role)| (user.name, role))
            .collect();
        let expected = [
            ("admin", ProjectRole::Admin),
            ("zoe", ProjectRole::Manager),
            ("bob", ProjectRole::User),
        ];
        assert_eq!(
            members,
            expected.map(|(name, role)| (name.to_owned(), role))
        );
        assert_eq!(
            projects::role(tx, main, zoe.id)?,
            Some(ProjectRole::Manager)
        );
        assert!(projects::remove_member(tx, main, bob.id)?);

        let mut open_project = project("Open", 2, admin);
        open_project.is_public = true;
        projects::insert(tx, &open_project)?;
        assert!(
            tx.attempt(|tx| projects::insert(tx, &project("OPEN", 5, admin)))
                .unwrap_err()
                .is_conflict()
        );
        let names = |tx: &mut dyn dstack_store::Tx,
                     filter: ProjectsFilter|
         -> Result<Vec<String>, DbError> {
            assert_eq!(
                projects::count(tx, &filter)?,
                u64::try_from(projects::list(tx, &filter)?.len()).unwrap()
            );
            Ok(projects::list(tx, &filter)?
                .into_iter()
                .map(|it| it.name)
                .collect())
        };
        let joined = ProjectsFilter {
            member: Some(zoe.id),
            ..ProjectsFilter::default()
        };
        assert_eq!(names(tx, joined.clone())?, ["main"]);
        assert_eq!(
            names(
                tx,
                ProjectsFilter {
                    or_public: true,
                    ..joined
                }
            )?,
            ["Open", "main"]
        );
        assert_eq!(projects::ids_of_member(tx, zoe.id)?, [main]);
        assert_eq!(projects::owned_by(tx, admin)?, 2);
        projects::update(
            tx,
            main,
            Some(true),
            Some(Some("https://example.org/t.git")),
        )?;
        projects::update(tx, main, None, None)?;
        let stored = projects::by_name(tx, "main")?.unwrap();
        assert!(stored.is_public && stored.templates_repo.is_some());
        projects::delete(tx, main, "_deleted_main")?;
        assert!(projects::by_name(tx, "main")?.is_none());
        assert_eq!(names(tx, ProjectsFilter::default())?, ["Open"]);
        Ok(())
    })
    .await
    .unwrap();
}

#[tokio::test]
async fn things_of_projects_are_replaced_by_name_and_keep_their_id() {
    let test = open();
    test.write(|tx| {
        let (admin, main) = seed(tx)?;
        let (one, two) = (Uuid::from_u128(11), Uuid::from_u128(12));
        let secret = |id, value: &str| SecretRow {
            id,
            project_id: main,
            name: "TOKEN".to_owned(),
            value: Sealed::new(value),
        };
        assert_eq!(secrets::put(tx, &secret(one, "a"), at(1))?, one);
        assert_eq!(secrets::put(tx, &secret(two, "b"), at(2))?, one);
        assert_eq!(secrets::of_project(tx, main)?, [secret(one, "b")]);
        assert_eq!(format!("{:?}", secret(one, "hunter2").value), "Sealed(***)");
        assert!(secrets::delete(tx, main, "TOKEN")?);
        assert!(secrets::get(tx, main, "TOKEN")?.is_none());

        let repo = |id, dir: &str| RepoRow {
            id,
            project_id: main,
            name: "r".to_owned(),
            info: crate::rows::parsed(serde_json::json!({"repo_type": "local", "repo_dir": dir})),
        };
        assert_eq!(repos::put(tx, &repo(one, "/a"))?, one);
        assert_eq!(repos::put(tx, &repo(two, "/b"))?, one);
        assert_eq!(repos::get(tx, main, "r")?.unwrap(), repo(one, "/b"));
        repos::set_creds(tx, one, admin, Some(&Sealed::new("x")))?;
        repos::set_creds(tx, one, admin, Some(&Sealed::new("y")))?;
        assert_eq!(repos::creds(tx, one, admin)?, Some(Sealed::new("y")));
        repos::set_creds(tx, one, admin, None)?;
        assert_eq!(repos::creds(tx, one, admin)?, None);
        let code = |blob: &[u8]| CodeRow {
            repo_id: one,
            hash: "h".to_owned(),
            size: 3,
            blob: Some(blob.to_vec()),
        };
        repos::add_code(tx, &code(b"abc"), at(1))?;
        repos::add_code(tx, &code(b"xyz"), at(2))?;
        assert_eq!(repos::code(tx, one, "h")?, Some(code(b"abc")));
        assert!(repos::has_code(tx, one, "h")? && !repos::has_code(tx, one, "g")?);
        assert!(repos::delete(tx, main, "r")?);
        assert!(
            repos::code(tx, one, "h")?.is_none(),
            "code goes with its repository"
        );

        let archive = |id| archives::ArchiveRow {
            id,
            user_id: admin,
            hash: "h".to_owned(),
            size: 1,
            blob: Some(vec![7]),
        };
        assert_eq!(archives::add(tx, &archive(one), at(1))?, one);
        assert_eq!(archives::add(tx, &archive(two), at(1))?, one);
        assert_eq!(archives::get(tx, one)?, Some(archive(one)));
        assert_eq!(archives::by_hash(tx, admin, "h")?.unwrap().id, one);
        assert!(archives::by_hash(tx, UserId(two), "h")?.is_none());

        let backend = |id, secret: &str| backends::BackendRow {
            id,
            project_id: main,
            kind: dstack_backend_types::BackendType::AWS,
            record: serde_json::json!({"type": "aws", "regions": ["eu-west-1"]}),
            secret: Sealed::new(secret),
            created_at: at(1),
            updated_at: at(1),
        };
        backends::put(tx, &backend(one, "a"))?;
        backends::put(tx, &backend(two, "b"))?;
        assert_eq!(backends::of_project(tx, main)?, [backend(one, "b")]);
        assert_eq!(backends::all(tx)?.len(), 1);
        assert!(backends::delete(
            tx,
            main,
            &dstack_backend_types::BackendType::AWS
        )?);

        assert_eq!(meta::get_or_set(tx, "id", "a")?, "a");
        assert_eq!(meta::get_or_set(tx, "id", "b")?, "a");
        Ok(())
    })
    .await
    .unwrap();
}

#[tokio::test]
async fn events_are_filtered_by_target_actor_and_who_asks() {
    let test = open();
    test.write(|tx| {
        let world = small_world(tx)?;
        runs::insert(tx, &world.run, at(100))?;
        jobs::insert(tx, &world.job, at(100))?;
        let job = EventTarget {
            kind: TargetKind::Job,
            project_id: world.project,
            id: world.job.id.0,
            name: world.job.name.clone(),
        };
        let of_job = Changes {
            events: vec![EventRow {
                message: "Job created\non run submission.".to_owned(),
                targets: vec![job],
                actor: dstack_engine::changes::Actor::System,
            }],
            ..Changes::default()
        };
        apply::apply_request(tx, &of_job, at(1))?;
        let zoe = user("zoe", 7);
        users::insert(tx, &zoe)?;
        let target = NewTarget {
            kind: EventTargetType::User,
            id: zoe.id.0,
            project_id: None,
            name: "zoe".into(),
        };
        let of_user = NewEvent {
            message: "User created".to_owned(),
            actor: Some(world.user),
            targets: vec![target],
        };
        events::insert(tx, &of_user, at(2))?;

        let messages =
            |tx: &mut dyn dstack_store::Tx, request: ListEventsRequest, who: &Visible| {
                let found = events::list(tx, &request, who)?;
                Ok::<_, DbError>(found.into_iter().map(|it| it.message).collect::<Vec<_>>())
            };
        let all = ListEventsRequest::default();
        assert_eq!(
            messages(tx, all.clone(), &Visible::All)?,
            ["User created", "Job created on run submission"]
        );
        let run = ListEventsRequest {
            within_runs: Some(vec![world.run.id.0]),
            ..all.clone()
        };
        assert_eq!(
            messages(tx, run, &Visible::All)?,
            ["Job created on run submission"]
        );
        let project = ListEventsRequest {
            within_projects: Some(vec![world.project.0]),
            ..all.clone()
        };
        assert_eq!(
            messages(tx, project, &Visible::All)?,
            ["Job created on run submission"]
        );
        let by_server = ListEventsRequest {
            actors: Some(vec![None]),
            ..all.clone()
        };
        assert_eq!(
            messages(tx, by_server, &Visible::All)?,
            ["Job created on run submission"]
        );
        let by_user = ListEventsRequest {
            actors: Some(vec![Some(world.user.0)]),
            ..all.clone()
        };
        assert_eq!(messages(tx, by_user, &Visible::All)?, ["User created"]);
        let of_users = ListEventsRequest {
            include_target_types: Some(vec![EventTargetType::User]),
            ..all.clone()
        };
        assert_eq!(messages(tx, of_users, &Visible::All)?, ["User created"]);
        let target = ListEventsRequest {
            target_users: Some(vec![zoe.id.0]),
            ..all.clone()
        };
        assert_eq!(messages(tx, target, &Visible::All)?, ["User created"]);
        let oldest = ListEventsRequest {
            ascending: true,
            limit: 1,
            ..all.clone()
        };
        assert_eq!(
            messages(tx, oldest, &Visible::All)?,
            ["Job created on run submission"]
        );
        let outsider = Visible::Of {
            user: zoe.id,
            projects: Vec::new(),
        };
        assert_eq!(messages(tx, all.clone(), &outsider)?, ["User created"]);
        let member = Visible::Of {
            user: UserId(Uuid::nil()),
            projects: vec![world.project],
        };
        assert_eq!(
            messages(tx, all.clone(), &member)?,
            ["Job created on run submission"]
        );

        let record = events::list(tx, &all, &Visible::All)?.remove(0);
        assert_eq!(record.actor.unwrap().name, "admin");
        assert_eq!(
            (
                record.targets[0].kind.as_str(),
                record.targets[0].name.as_str()
            ),
            ("user", "zoe")
        );
        assert_eq!(events::delete_before(tx, at(2), 100)?, 1);
        assert_eq!(messages(tx, all, &Visible::All)?, ["User created"]);
        Ok(())
    })
    .await
    .unwrap();
}

#[tokio::test]
async fn a_store_without_events_writes_none() {
    let folder = tempfile::tempdir().unwrap();
    let store = dstack_store::Store::open(dstack_store::StoreConfig {
        keeps_events: false,
        ..dstack_store::StoreConfig::file(folder.path().join("sqlite.db"))
    })
    .unwrap();
    let event = events::NewEvent {
        message: "User created".to_owned(),
        actor: None,
        targets: Vec::new(),
    };
    let row = dstack_engine::changes::EventRow {
        message: "Job created".into(),
        actor: dstack_engine::changes::Actor::System,
        targets: Vec::new(),
    };
    let changes = dstack_engine::changes::Changes {
        events: vec![row],
        ..Default::default()
    };
    store
        .write(move |tx| {
            assert_eq!(events::insert(tx, &event, at(1))?, None);
            apply::apply_request(tx, &changes, at(1)).map(drop)
        })
        .await
        .unwrap();
    let listed = store
        .read(|tx| events::list(tx, &ListEventsRequest::default(), &Visible::All))
        .await
        .unwrap();
    assert_eq!(listed, []);
}
