//! A queue in this process: [`MemoryJobs`].

use std::collections::{BTreeSet, HashMap, VecDeque};
use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard};

use bytes::Bytes;
use sluicegate_core::ConfigError;
use sluicegate_core::support::lock;
use tokio::sync::{Notify, watch};
use tokio::task::JoinSet;
use tokio::time::Instant;

use crate::deferred::queue::{
    JobAttempt, JobQueue, JobRecord, JobState, JobWorker, Pushed, QueueFuture, QueueSettings, QueuedJob,
    StopFuture,
};

/// Jobs in the memory of this process: for tests, or if jobs may be lost with the process. Clones are the same queue.
///
/// Results are kept in addition to jobs: at most [`most_jobs`](QueueSettings::most_jobs) of them; then a new result replaces the oldest.
#[derive(Clone)]
pub struct MemoryJobs(Arc<MemoryQueue>);

struct MemoryQueue {
    settings: QueueSettings,
    state: Mutex<JobTable>,
    /// Wakes workers that have no job.
    pushed: Notify,
}

#[derive(Default)]
struct JobTable {
    jobs: HashMap<String, KeptJob>,
    /// The ids of jobs that may be taken.
    ready: VecDeque<String>,
    /// The ids of jobs that have failed or whose turns are later, by the end of their pause.
    paused: BTreeSet<(Instant, String)>,
    /// The ids of jobs that are done, the oldest first, and the times at which they are forgotten.
    done: VecDeque<(Instant, String)>,
}

struct KeptJob {
    job: QueuedJob,
    /// The number of attempts begun.
    attempts: u32,
    state: JobState,
}

impl MemoryJobs {
    /// An empty queue.
    ///
    /// # Errors
    /// When a setting cannot work; the error names the value.
    pub fn new(settings: QueueSettings) -> Result<Self, ConfigError> {
        let settings = settings.checked()?;
        Ok(Self(Arc::new(MemoryQueue { settings, state: Mutex::default(), pushed: Notify::new() })))
    }

    fn state(&self) -> MutexGuard<'_, JobTable> {
        let mut state = lock(&self.0.state);
        state.forget(Instant::now(), self.0.settings.most_jobs);
        state
    }

    fn pushed(&self, job: QueuedJob) -> Pushed {
        let mut state = self.state();
        if let Some(known) = state.jobs.get(&job.id) {
            return Pushed::Known(known.record());
        }
        if count(state.jobs.len()) - count(state.done.len()) >= self.0.settings.most_jobs {
            return Pushed::Full;
        }
        state.ready.push_back(job.id.clone());
        state.jobs.insert(job.id.clone(), KeptJob { job, attempts: 0, state: JobState::Waiting });
        self.0.pushed.notify_one();
        Pushed::Kept
    }

    /// Takes the next job, or returns the end of the next pause.
    fn take(&self) -> Result<HeldJob, Option<Instant>> {
        let mut state = self.state();
        let now = Instant::now();
        while state.paused.first().is_some_and(|(until, _)| *until <= now)
            && let Some((_, id)) = state.paused.pop_first()
        {
            state.ready.push_back(id);
        }
        let Some(id) = state.ready.pop_front() else {
            return Err(state.paused.first().map(|(until, _)| *until));
        };
        let entry = state.jobs.get_mut(&id).expect("a job that is not done is kept");
        entry.attempts += 1;
        let (job, attempt) = (entry.job.clone(), entry.attempts);
        Ok(HeldJob { queue: self.clone(), job, attempt, is_settled: false })
    }

    async fn take_one_after_the_other(self, worker: JobWorker, mut stop: watch::Receiver<bool>) {
        while !*stop.borrow() {
            match self.take() {
                Ok(held) => {
                    // The next worker may find one, too.
                    self.0.pushed.notify_one();
                    let outcome = worker.carry_out(held.job.clone(), held.attempt).await;
                    held.settle(outcome);
                }
                Err(until) => {
                    let pause = async {
                        match until {
                            Some(until) => tokio::time::sleep_until(until).await,
                            None => std::future::pending().await,
                        }
                    };
                    tokio::select! {
                        () = self.0.pushed.notified() => {}
                        () = pause => {}
                        _ = stop.wait_for(|stop| *stop) => return,
                    }
                }
            }
        }
    }
}

/// A job that a worker holds: it is handed out again if this is dropped.
struct HeldJob {
    queue: MemoryJobs,
    job: QueuedJob,
    attempt: u32,
    is_settled: bool,
}

impl HeldJob {
    /// Ends the attempt.
    fn settle(mut self, outcome: JobAttempt) {
        self.is_settled = true;
        let QueueSettings { attempts, results_last, .. } = self.queue.0.settings;
        let mut state = self.queue.state();
        let (now, id) = (Instant::now(), self.job.id.clone());
        let entry = state.jobs.get_mut(&id).expect("a job in hand is kept");
        match outcome {
            JobAttempt::Done(result) => {
                entry.state = JobState::Done(result);
                entry.job.sealed = Bytes::new();
                state.done.push_back((now + results_last, id));
            }
            JobAttempt::Later(pause) => {
                entry.attempts = entry.attempts.saturating_sub(1);
                state.paused.insert((now + pause, id));
            }
            JobAttempt::Failed if self.attempt >= attempts => entry.state = JobState::Parked,
            JobAttempt::Failed => {
                let until = now + self.queue.0.settings.pause_after(self.attempt);
                state.paused.insert((until, id));
            }
        }
    }
}

impl Drop for HeldJob {
    fn drop(&mut self) {
        if !self.is_settled {
            self.queue.state().ready.push_front(self.job.id.clone());
            self.queue.0.pushed.notify_one();
        }
    }
}

impl KeptJob {
    fn record(&self) -> JobRecord {
        JobRecord::new(self.state.clone(), self.job.label.clone())
    }
}

impl JobTable {
    /// Forgets expired results, and the oldest ones beyond the bound.
    fn forget(&mut self, now: Instant, most: u64) {
        while self.done.front().is_some_and(|(until, _)| *until <= now) || count(self.done.len()) > most {
            let Some((_, id)) = self.done.pop_front() else { return };
            self.jobs.remove(&id);
        }
    }
}

impl JobQueue for MemoryJobs {
    fn push(&self, job: QueuedJob) -> QueueFuture<'_, Pushed> {
        Box::pin(async move { Ok(self.pushed(job)) })
    }

    fn look_up<'a>(&'a self, id: &'a str) -> QueueFuture<'a, Option<JobRecord>> {
        Box::pin(async move { Ok(self.state().jobs.get(id).map(KeptJob::record)) })
    }

    fn run(&self, worker: JobWorker, stop: StopFuture) -> Pin<Box<dyn Future<Output = ()> + Send + '_>> {
        Box::pin(async move {
            let (told, stopped) = watch::channel(false);
            // Dropped with this future, together with the jobs that they hold.
            let mut workers = JoinSet::new();
            for _ in 0..self.0.settings.at_once {
                workers.spawn(self.clone().take_one_after_the_other(worker.clone(), stopped.clone()));
            }
            stop.await;
            told.send_replace(true);
            while workers.join_next().await.is_some() {}
        })
    }

    fn unpark(&self) -> QueueFuture<'_, u64> {
        Box::pin(async move {
            let once_more = self.0.settings.attempts - 1;
            let mut state = self.state();
            let JobTable { jobs, ready, .. } = &mut *state;
            let parked = jobs.iter_mut().filter(|(_, entry)| entry.state == JobState::Parked);
            let mut unparked = 0;
            for (id, entry) in parked {
                (entry.state, entry.attempts) = (JobState::Waiting, once_more);
                ready.push_back(id.clone());
                unparked += 1;
            }
            drop(state);
            self.0.pushed.notify_one();
            Ok(unparked)
        })
    }
}

impl fmt::Debug for MemoryJobs {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MemoryJobs").field("jobs", &self.state().jobs.len()).finish_non_exhaustive()
    }
}

fn count(length: usize) -> u64 {
    u64::try_from(length).unwrap_or(u64::MAX)
}
