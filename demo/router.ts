import type { Logger } from '../src/observe/logger.ts';
import { asApiStatus, encodeBody, noSuchPath } from './api-status.ts';
import { authenticate } from './authentication.ts';
import { discoverGroup, discoverRoot, discoverVersion } from './discovery.ts';
import { createExchange, type ApiExchange, type HttpRequest, type HttpResponse } from './exchange.ts';
import type { ApiObject } from './json.ts';
import { openApiV2Protobuf, openApiV3, openApiV3Index } from './openapi.ts';
import { serveResource, type RestDependencies } from './rest.ts';

/** Kubernetes version that the cluster reports. */
export const CLUSTER_VERSION = 'v1.33.0';

export interface AnswerDependencies {
  readonly adminToken: string;
  readonly closing: AbortSignal;
  readonly rest: RestDependencies;
  readonly log: Logger;
}

/** Handles one request. Sends errors to the client as a status. Never rejects. */
export async function answer(
  request: HttpRequest,
  response: HttpResponse,
  dependencies: AnswerDependencies,
): Promise<void> {
  let exchange: ApiExchange | undefined;
  try {
    const user = authenticate(request.rawHeaders, dependencies.adminToken);
    exchange = createExchange(request, response, user, dependencies.closing);
    dependencies.log.debug(
      { method: exchange.method, path: exchange.path.text, user: user.username },
      'demo request',
    );
    await route(exchange, dependencies.rest);
  } catch (error) {
    const status = asApiStatus(error);
    if (exchange !== undefined) exchange.send(status.httpStatus, status.status);
    else refuse(response, status.httpStatus, encodeBody(status.status));
  }
}

function refuse(response: HttpResponse, httpStatus: number, body: string): void {
  const target: {
    writeHead(code: number, headers: Record<string, string>): unknown;
    end(text: string): unknown;
  } = response;
  target.writeHead(httpStatus, { 'content-type': 'application/json' });
  target.end(body);
}

async function route(exchange: ApiExchange, rest: RestDependencies): Promise<void> {
  const { text, segments } = exchange.path;
  if (['/livez', '/readyz', '/healthz'].includes(text)) {
    exchange.sendText(200, 'ok', 'text/plain');
  } else if (text === '/version' || text === '/version/') {
    exchange.send(200, describeVersion());
  } else if (segments[0] === 'openapi') {
    sendOpenApi(exchange);
  } else if (!discover(exchange)) {
    await serveResource(exchange, rest);
  }
}

/** Handles requests for discovery. @returns false if the path is not a discovery path */
function discover(exchange: ApiExchange): boolean {
  const given = exchange.path.segments;
  const segments = given.at(-1) === '' ? given.slice(0, -1) : given;
  const [root, first = '', second = ''] = segments;
  const depth = segments.length;
  const deepest = root === 'apis' ? 3 : root === 'api' ? 2 : 0;
  if (exchange.method !== 'GET' || depth > deepest) return false;
  if (depth === 1) {
    const { contentType, body } = discoverRoot(
      root === 'api' ? 'legacy' : 'groups',
      exchange.accept,
      '127.0.0.1',
    );
    exchange.send(200, body, contentType);
    return true;
  }
  const group = root === 'api' ? '' : first;
  const version = root === 'api' ? first : second;
  const found = root === 'apis' && depth === 2 ? discoverGroup(group) : discoverVersion(group, version);
  if (found === undefined) throw noSuchPath();
  exchange.send(200, found);
  return true;
}

function sendOpenApi(exchange: ApiExchange): void {
  const [, version, ...rest] = exchange.path.segments;
  if (version === 'v2' && exchange.accept.includes('proto-openapi')) {
    const type = 'application/com.github.proto-openapi.spec.v2.v1.0+protobuf';
    exchange.sendText(200, openApiV2Protobuf(), type);
    return;
  }
  const path = rest.join('/');
  const found = path === '' ? openApiV3Index() : openApiV3(path);
  if (found === undefined || version !== 'v3') throw noSuchPath();
  exchange.send(200, found);
}

function describeVersion(): ApiObject {
  const [major = '', minor = ''] = CLUSTER_VERSION.slice(1).split('.');
  return {
    major,
    minor,
    gitVersion: `${CLUSTER_VERSION}+tailcast.demo`,
    gitCommit: '0'.repeat(40),
    gitTreeState: 'clean',
    buildDate: '2025-04-23T00:00:00Z',
    goVersion: 'go1.24.2',
    compiler: 'gc',
    platform: `${process.platform}/${process.arch}`,
  };
}
