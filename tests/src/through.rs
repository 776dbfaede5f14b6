//! Delegation from a stream to the stream that it wraps.

/// Defines the methods of an [`AsyncWrite`](tokio::io::AsyncWrite) other than `poll_write`. They
/// delegate to the stream in the given field.
#[macro_export]
macro_rules! flush_and_shut_down_through {
    ($stream:ident) => {
        fn poll_flush(
            self: ::std::pin::Pin<&mut Self>,
            cx: &mut ::std::task::Context<'_>,
        ) -> ::std::task::Poll<::std::io::Result<()>> {
            ::std::pin::Pin::new(&mut self.get_mut().$stream).poll_flush(cx)
        }

        fn poll_shutdown(
            self: ::std::pin::Pin<&mut Self>,
            cx: &mut ::std::task::Context<'_>,
        ) -> ::std::task::Poll<::std::io::Result<()>> {
            ::std::pin::Pin::new(&mut self.get_mut().$stream).poll_shutdown(cx)
        }
    };
}
