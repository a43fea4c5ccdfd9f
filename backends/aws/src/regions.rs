//! Several regions at once: a provider far away is asked in all of them while one would answer.

use std::sync::Mutex;

use dstack_backend_sdk::{BackendError, Call, Result};

/// How many are asked at once.
const AT_ONCE: usize = 12;

/// Asks in each region, and returns the answers in the order of the regions.
pub(crate) fn in_each<T: Send>(
    regions: &[String],
    ask: impl Fn(&str) -> Result<T> + Sync,
) -> Vec<(String, Result<T>)> {
    let call = Call::current();
    let waiting = Mutex::new(regions.iter().enumerate());
    let answers: Mutex<Vec<(usize, Result<T>)>> = Mutex::new(Vec::new());
    let work = || {
        let _entered = call.enter();
        loop {
            let next = lock(&waiting).next();
            let Some((at, region)) = next else { return };
            let answer = ask(region);
            lock(&answers).push((at, answer));
        }
    };
    if regions.len() <= 1 {
        work();
    } else {
        std::thread::scope(|threads| {
            for _ in 0..regions.len().min(AT_ONCE) {
                threads.spawn(work);
            }
        });
    }
    let mut answers: Vec<(usize, Result<T>)> = std::mem::take(&mut *lock(&answers));
    answers.sort_by_key(|(at, _)| *at);
    let mut answers = answers.into_iter().map(|(_, answer)| answer);
    let with_answer = |region: &String| {
        let answer = answers.next();
        let lost = || Err(BackendError::internal(format!("{region} was not asked")));
        (region.clone(), answer.unwrap_or_else(lost))
    };
    regions.iter().map(with_answer).collect()
}

/// A panic of another thread ends the call; what stands here is whole all the same.
fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex
        .lock()
        .unwrap_or_else(std::sync::PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::in_each;
    use dstack_backend_sdk::testing::{Host, Reply};
    use dstack_backend_sdk::{BackendError, http::Request};

    #[test]
    fn answers_keep_the_order_of_the_regions() {
        let host = Host::new(|_| Reply::status(200));
        let regions: Vec<String> = (0..30).map(|at| format!("region-{at}")).collect();
        let answers = in_each(&regions, |region| {
            Request::get(format!("https://{region}.example")).send()?;
            if region == "region-7" {
                return Err(BackendError::internal("seven"));
            }
            Ok(region.len())
        });
        let named: Vec<&String> = answers.iter().map(|(region, _)| region).collect();
        assert_eq!(named, regions.iter().collect::<Vec<_>>());
        assert_eq!(answers[29].1.as_ref().ok(), Some(&9));
        assert!(answers[7].1.is_err());
        assert_eq!(host.requests().len(), 30, "each belongs to the call");
    }
}
