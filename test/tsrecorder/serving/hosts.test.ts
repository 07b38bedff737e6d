import { describe, expect, it } from 'vitest';
import { createHosts } from '../../../src/tsrecorder/serving/hosts.ts';

describe('the origin of a page', () => {
  const hosts = createHosts(['recorder.example.com']);

  it.each([
    ['http://localhost:8080', 'localhost:8080'],
    ['https://recorder.example.com', 'recorder.example.com'],
    // a reverse proxy sends another host name
    ['https://recorder.example.com', 'localhost:8080'],
  ])('%s is accepted with the host %s', (origin, host) => {
    expect(hosts.acceptsOrigin(origin, host)).toBe(true);
  });

  it.each([
    // another service on the same host
    ['http://recorder.example.com:9999', 'recorder.example.com:8080'],
    ['http://localhost:9999', 'localhost:8080'],
    ['https://evil.example', 'recorder.example.com'],
    ['https://recorder.example.com.evil.example', 'recorder.example.com'],
    ['null', 'recorder.example.com'],
  ])('%s is refused with the host %s', (origin, host) => {
    expect(hosts.acceptsOrigin(origin, host)).toBe(false);
  });
});
