//! How the streams of recipes implement `Stream`.

/// An error of a stream.
pub(crate) trait StreamError {
    /// Returns whether no item can follow this error, because the client has stopped.
    fn is_last(&self) -> bool;
}

/// Implements `Stream` for a type by its method `next`, which must lose nothing when its future is
/// dropped after each poll, and must be woken nevertheless. The field `has_ended` tells whether the
/// last error was yielded.
macro_rules! stream {
    ($type:ty, $item:ty, $error:ty) => {
        /// Yields what `next` returns, and ends after the error that says that the client has stopped, or
        /// that nothing can follow. `next` and this may alternate: no item is lost when a future is
        /// dropped.
        impl futures_core::Stream for $type {
            type Item = Result<$item, $error>;

            fn poll_next(
                self: std::pin::Pin<&mut Self>,
                cx: &mut std::task::Context<'_>,
            ) -> std::task::Poll<Option<Self::Item>> {
                let stream = self.get_mut();
                if stream.has_ended {
                    return std::task::Poll::Ready(None);
                }
                let item = {
                    let next = std::pin::pin!(stream.next());
                    std::task::ready!(std::future::Future::poll(next, cx))
                };
                let is_last = crate::stream::StreamError::is_last;
                stream.has_ended = item.as_ref().is_err_and(is_last);
                std::task::Poll::Ready(Some(item))
            }
        }
    };
}

pub(crate) use stream;
