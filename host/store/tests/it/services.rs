//! Probes of replicas and requests to services.

use dstack_engine::changes::{Changes, NewProbe};
use dstack_engine::ids::{JobId, RunId};
use dstack_engine::scaling::Traffic;
use dstack_store::probes::DueProbe;
use dstack_store::{apply, probes, traffic};
use uuid::Uuid;

use crate::support::{at, open};

const JOB: JobId = JobId(Uuid::from_u128(7));
const RUN: RunId = RunId(Uuid::from_u128(8));

#[tokio::test]
async fn a_probe_is_asked_by_one_at_a_time_until_its_job_ends() {
    let store = open();
    let probe = |num| NewProbe { job_id: JOB, num };
    let due = |num, success_streak| DueProbe {
        job_id: JOB,
        num,
        success_streak,
    };
    store
        .write(move |tx| {
            let begin = Changes {
                new_probes: vec![probe(0), probe(1)],
                ..Changes::default()
            };
            apply::apply_request(tx, &begin, at(1))?;
            assert_eq!(probes::due(tx, at(0), 9)?, []);
            assert_eq!(probes::due(tx, at(1), 9)?, [due(0, 0), due(1, 0)]);
            assert_eq!(probes::due(tx, at(1), 1)?, [due(0, 0)]);
            probes::take(tx, due(0, 0), at(90))?;
            assert_eq!(
                probes::due(tx, at(2), 9)?,
                [due(1, 0)],
                "somebody asks the other one"
            );
            assert_eq!(probes::due(tx, at(90), 9)?.len(), 2, "whoever did has died");
            probes::record(tx, JOB, 0, 3, Some(at(17)))?;
            probes::record(tx, JOB, 1, 1, None)?;
            assert_eq!(probes::next_due(tx)?, Some(at(17)), "the other one is over");
            assert_eq!(probes::streaks(tx, JOB)?, [3, 1]);
            // Begun once: a step that is repeated changes nothing.
            apply::apply_request(tx, &begin, at(20))?;
            assert_eq!(probes::streaks(tx, JOB)?, [3, 1]);
            let end = Changes {
                end_probes: vec![JOB],
                ..Changes::default()
            };
            apply::apply_request(tx, &end, at(21))?;
            assert_eq!(probes::next_due(tx)?, None);
            probes::record(tx, JOB, 0, 4, Some(at(30)))?;
            assert_eq!(
                probes::next_due(tx)?,
                None,
                "an answer that comes too late starts nothing"
            );
            assert_eq!(
                probes::streaks_of(tx, &[JOB])?.get(&JOB),
                Some(&vec![3, 1]),
                "still shown"
            );
            Ok(())
        })
        .await
        .unwrap();
}

#[tokio::test]
async fn traffic_counts_while_everybody_reports() {
    let store = open();
    let seen = |requests| Traffic {
        last_30: requests,
        last_60: requests * 2,
        last_300: requests * 10,
    };
    store
        .write(move |tx| {
            assert_eq!(
                traffic::of_run(tx, RUN, at(0))?,
                None,
                "nobody has reported"
            );
            traffic::put(tx, RUN, "a", seen(1), at(0))?;
            traffic::put(tx, RUN, "b", seen(2), at(50))?;
            assert_eq!(traffic::of_run(tx, RUN, at(60))?, Some(seen(3)));
            assert_eq!(
                traffic::of_run(tx, RUN, at(61))?,
                None,
                "a may carry all the load"
            );
            traffic::put(tx, RUN, "a", seen(5), at(61))?;
            assert_eq!(
                traffic::of_run(tx, RUN, at(61))?,
                Some(seen(7)),
                "the last report counts"
            );
            traffic::put(tx, RUN, "b", seen(0), at(651))?;
            assert_eq!(traffic::of_run(tx, RUN, at(660))?, None);
            assert_eq!(
                traffic::of_run(tx, RUN, at(661))?,
                Some(seen(0)),
                "a is gone"
            );
            traffic::remove(tx, RUN, "b")?;
            assert_eq!(traffic::of_run(tx, RUN, at(661))?, None);
            Ok(())
        })
        .await
        .unwrap();
}
