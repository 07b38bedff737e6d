/** Clients of the soak test in their own process: shells, watches, requests and short connections. */
import { readFileSync } from 'node:fs';
import { Agent, get } from 'node:https';
import { connect } from 'node:tls';
import { WebSocket } from 'ws';
import { SHELL, SMALL_BODY, SMALL_PATH, shellOutput, WATCH_PATH, watchEvent } from './content.ts';

export interface LoadPlan {
  /** `https://host:port` of the gateway. */
  readonly url: string;
  readonly ca: string;
  readonly shells: number;
  readonly watches: number;
  readonly requestsPerSecond: number;
  /** Number of new TLS connections per second. Each connection is closed after one request, or before the response. */
  readonly connectionsPerSecond: number;
  /** Duration over which the opening of shells and watches is spread. */
  readonly rampMs: number;
}

export interface LoadReport {
  readonly shellsOpen: number;
  readonly shellsDone: number;
  readonly watchesOpen: number;
  readonly events: number;
  readonly requests: number;
  readonly connections: number;
  /** The first errors. */
  readonly faults: readonly string[];
  readonly faultCount: number;
  readonly ended: boolean;
}

const MAX_FAULTS = 20;
const REQUEST_MS = 30_000;

const plan = JSON.parse(process.argv[2] ?? '{}') as LoadPlan;
const ca = readFileSync(plan.ca);
const faults: string[] = [];
const count = {
  shellsOpen: 0,
  shellsDone: 0,
  watchesOpen: 0,
  events: 0,
  requests: 0,
  connections: 0,
  faults: 0,
};
let stopping = false;
let nextShell = 0;

function fault(what: string): void {
  count.faults += 1;
  if (faults.length < MAX_FAULTS) faults.push(what);
}

function runShell(): void {
  if (stopping) return;
  const shell = nextShell;
  nextShell += 1;
  const expected = shellOutput(shell);
  const received: Buffer[] = [];
  let status = '';
  const query = `command=${SHELL}&command=${shell}&stdout=true&stderr=true&stdin=true`;
  const address = `${plan.url.replace('https:', 'wss:')}/api/v1/namespaces/default/pods/web/exec?${query}`;
  const socket = new WebSocket(address, ['v5.channel.k8s.io'], { ca });
  count.shellsOpen += 1;
  socket.on('message', (data: Buffer) => {
    if (data[0] === 1) received.push(data.subarray(1));
    if (data[0] === 3) status += data.subarray(1).toString();
  });
  socket.on('error', (error) => fault(`shell ${shell}: ${error.message}`));
  socket.once('close', (code) => {
    count.shellsOpen -= 1;
    count.shellsDone += 1;
    if (!Buffer.concat(received).equals(expected)) fault(`shell ${shell}: other output, closed with ${code}`);
    else if (!status.includes('"Success"')) fault(`shell ${shell}: no status`);
    runShell();
  });
}

const watchAgent = new Agent({ ca, keepAlive: false, maxSockets: Infinity });

function runWatch(watch: number): void {
  let line = '';
  let number = 0;
  const request = get(`${plan.url}${WATCH_PATH}`, { agent: watchAgent }, (response) => {
    count.watchesOpen += 1;
    if (response.statusCode !== 200) fault(`watch ${watch}: answered ${response.statusCode ?? 0}`);
    response.setEncoding('utf8');
    response.on('data', (chunk: string) => {
      line += chunk;
      for (let end = line.indexOf('\n'); end >= 0; end = line.indexOf('\n')) {
        number += 1;
        count.events += 1;
        if (line.slice(0, end + 1) !== watchEvent(number))
          fault(`watch ${watch}: event ${number} is another`);
        line = line.slice(end + 1);
      }
    });
    response.once('close', () => {
      count.watchesOpen -= 1;
      if (!stopping) fault(`watch ${watch}: ended after ${number} events`);
    });
    response.on('error', () => undefined);
  });
  request.on('error', (error) => {
    if (!stopping) fault(`watch ${watch}: ${error.message}`);
  });
}

const requestAgent = new Agent({ ca, keepAlive: true, maxSockets: 32 });

/**
 * Number of pending requests. The number is limited, so a slow machine does not reach the planned rate. The report
 * shows the actual rate.
 */
let waiting = 0;
const MAX_WAITING = 500;

function runRequest(agent: Agent): void {
  if (waiting >= MAX_WAITING) return;
  waiting += 1;
  const request = get(`${plan.url}${SMALL_PATH}`, { agent, timeout: REQUEST_MS }, (response) => {
    const body: Buffer[] = [];
    response.on('data', (chunk: Buffer) => body.push(chunk));
    response.once('end', () => {
      count.requests += 1;
      if (response.statusCode !== 200 || !Buffer.concat(body).equals(SMALL_BODY)) {
        fault(`request: answered ${response.statusCode ?? 0}`);
      }
    });
    response.on('error', (error) => fault(`response: ${error.message}`));
  });
  request.once('close', () => (waiting -= 1));
  request.once('timeout', () => request.destroy(new Error('no answer')));
  request.on('error', (error) => {
    if (!stopping) fault(`request: ${error.message}`);
  });
}

/**
 * Opens a connection. Every third connection is destroyed 50 ms after its request, which is incomplete in half of these
 * connections. The other connections are closed after the response.
 */
function runConnection(): void {
  count.connections += 1;
  if (count.connections % 3 !== 0) return runRequest(new Agent({ ca, keepAlive: false }));
  const { hostname, port } = new URL(plan.url);
  const socket = connect({ host: hostname, port: Number(port), ca });
  socket.on('error', () => undefined);
  socket.once('secureConnect', () => {
    socket.write(
      `GET ${SMALL_PATH} HTTP/1.1\r\nHost: ${hostname}\r\n${count.connections % 2 === 0 ? '\r\n' : ''}`,
    );
    setTimeout(() => socket.destroy(), 50);
  });
}

/** Calls `act` at a constant rate, also if the timer is late. */
function atRate(perSecond: number, act: () => void): NodeJS.Timeout {
  const startedMs = performance.now();
  let done = 0;
  return setInterval(() => {
    const due = ((performance.now() - startedMs) / 1000) * perSecond;
    for (; done < due; done++) act();
  }, 20);
}

const report = (ended: boolean): LoadReport => ({ ...count, faults, faultCount: count.faults, ended });
const ramp = (total: number, act: (index: number) => void): void => {
  for (let index = 0; index < total; index++) setTimeout(() => act(index), (index / total) * plan.rampMs);
};
ramp(plan.shells, runShell);
ramp(plan.watches, runWatch);
const timers = [
  atRate(plan.requestsPerSecond, () => runRequest(requestAgent)),
  atRate(plan.connectionsPerSecond, runConnection),
];
setInterval(() => process.send?.(report(false)), 1000);
process.on('message', () => {
  stopping = true;
  for (const timer of timers) clearInterval(timer);
  watchAgent.destroy();
  const poll = setInterval(() => {
    if (count.shellsOpen > 0) return;
    clearInterval(poll);
    process.send?.(report(true), () => process.exit(0));
  }, 100);
});
