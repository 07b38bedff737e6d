import { connect, type Socket } from 'node:net';
import type { DialRecorder } from '../../src/recording/recorder-connection.ts';

/** Connects to `ip:port` on loopback, as a gateway without a tailnet does. */
export const dialLoopback: DialRecorder = (address, signal) => {
  const at = address.lastIndexOf(':');
  const opened = Promise.withResolvers<Socket>();
  const socket = connect({ host: address.slice(0, at), port: Number(address.slice(at + 1)), noDelay: true });
  socket.once('connect', () => opened.resolve(socket));
  socket.once('error', opened.reject);
  signal.addEventListener('abort', () => socket.destroy(new Error('given up')), { once: true });
  return opened.promise;
};

/** An address that drops packets, so a connection never succeeds. */
export const dialBlackHole: DialRecorder = (_address, signal) => {
  const opened = Promise.withResolvers<Socket>();
  signal.addEventListener('abort', () => opened.reject(signal.reason), { once: true });
  return opened.promise;
};
