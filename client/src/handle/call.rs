//! The future of an operation.
//!
//! Owns how a reply becomes the result of an operation. Must not know which operations there are.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use futures::channel::oneshot;

use super::engine::Answer;
use super::view::View;
use super::watch::Watch;
use crate::error::Error;
use crate::session::{Done, Failure};

/// The future of an operation, which has been queued already: the order of operations is that in
/// which they were called, whenever their futures are polled.
///
/// Dropping the future does not withdraw the operation; it only drops the result.
#[must_use = "the operation is queued already; await it to learn its result"]
#[derive(Debug)]
pub struct Call<T> {
    operation: &'static str,
    path: String,
    /// `None` if the operation was refused before it was queued.
    answer: Result<oneshot::Receiver<Answer>, Failure>,
    read: Read<T>,
    view: Arc<View>,
}

/// Makes the result from the answer.
pub(super) type Read<T> = fn(Result<Done, Failure>, Option<Watch>) -> Result<T, Failure>;

impl<T> Call<T> {
    pub(super) fn new(
        operation: &'static str,
        path: String,
        answer: Result<oneshot::Receiver<Answer>, Failure>,
        read: Read<T>,
        view: Arc<View>,
    ) -> Call<T> {
        Call { operation, path, answer, read, view }
    }
}

impl<T> Future for Call<T> {
    type Output = Result<T, Error>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let result = match &mut self.answer {
            Ok(answer) => {
                let answer = std::task::ready!(Pin::new(answer).poll(cx));
                // The driver has ended, and the session with it.
                let (result, watch) = answer.unwrap_or((Err(self.view.failure()), None));
                (self.read)(result, watch)
            }
            Err(refused) => Err(*refused),
        };
        let path = std::mem::take(&mut self.path);
        Poll::Ready(result.map_err(|failure| Error::new(self.operation, path, failure)))
    }
}
