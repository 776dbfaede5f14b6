//! An address at which nobody listens.

use std::net::SocketAddr;

use tokio::net::TcpSocket;

/// An address of the loopback interface that refuses connections. As long as the value lives, no
/// other test gets the port.
#[derive(Debug)]
pub struct DeadHost {
    /// It is bound and does not listen.
    _socket: TcpSocket,
    addr: SocketAddr,
}

impl DeadHost {
    /// Reserves an address.
    ///
    /// # Panics
    ///
    /// If there is no free port.
    pub fn new() -> Self {
        let socket = TcpSocket::new_v4().expect("a socket");
        let any = SocketAddr::from(([127, 0, 0, 1], 0));
        socket.bind(any).expect("a free loopback port");
        let addr = socket.local_addr().expect("it is bound");
        Self { _socket: socket, addr }
    }

    /// Returns the address.
    pub fn addr(&self) -> SocketAddr {
        self.addr
    }
}

impl Default for DeadHost {
    fn default() -> Self {
        Self::new()
    }
}
