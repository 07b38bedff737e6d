/** Checks the listeners of a Gateway, and selects their certificates. Pure. */
import type { TableCertificate } from '../../wire/ingress-table.ts';
import { doubtsOf, MAX_CERTIFICATE_BYTES, readCertificate, type TlsSecret } from '../ingress/table.ts';
import type { ServingNode } from '../ingress/serve-config.ts';
import { failed, succeeded, type Verdict } from '../workload/status.ts';
import { coversHost } from './hosts.ts';
import { GATEWAY_GROUP, type Gateway, type Listener } from './resource.ts';

/** A checked listener. */
export interface ListenerPlan {
  readonly name: string;
  readonly port: number;
  readonly isSecure: boolean;
  /** A name or a wildcard; the empty text stands for all names. */
  readonly hostname: string;
  /** True if the listener uses the certificate from the control server, which is valid only for the node's name. */
  readonly isOwnNameOnly: boolean;
  readonly fromAll: boolean;
  readonly allowsHttpRoutes: boolean;
  readonly accepted: Verdict;
  readonly refs: Verdict;
  /** Reason why the listener is not served; undefined if it is served. */
  readonly unserved: string | undefined;
  readonly certificate: TableCertificate | undefined;
}

export interface ListenerFacts {
  readonly node: ServingNode;
  readonly isOwnName: (host: string) => boolean;
  /** Certificate Secrets of the listeners. Map keys: name of the Secret. */
  readonly secrets: ReadonlyMap<string, TlsSecret>;
  readonly nowMs: number;
}

const KNOWN: readonly string[] = ['name', 'hostname', 'port', 'protocol', 'tls', 'allowedRoutes'];
const KNOWN_TLS: readonly string[] = ['mode', 'certificateRefs', 'options'];

/**
 * Returns the names of the certificate Secrets in the Gateway's namespace. Secrets of other namespaces are not
 * allowed.
 */
export function certificateNames({ metadata, spec }: Gateway): readonly string[] {
  const refs = spec.listeners.flatMap(({ tls }) => tls?.certificateRefs ?? []);
  const own = refs.filter(
    ({ namespace, kind }) => kind === 'Secret' && (namespace ?? metadata.namespace) === metadata.namespace,
  );
  return [...new Set(own.map(({ name }) => name))];
}

/**
 * True if a listener has a certificate reference. The pod then needs tailcast's ingress server in addition to
 * tailscaled.
 */
export function namesCertificates({ spec }: Gateway): boolean {
  return spec.listeners.some(({ tls }) => (tls?.certificateRefs.length ?? 0) > 0);
}

/** True if a listener uses the certificate from the control server. Only tailscaled can serve this certificate. */
export function usesControlCertificate(gateway: Gateway): boolean {
  return !namesCertificates(gateway) && gateway.spec.listeners.some(({ protocol }) => protocol === 'HTTPS');
}

/**
 * Returns the names of the other HTTPS listeners that share hostnames with a listener. Browsers may use one connection
 * for several of these listeners.
 */
export function overlapsOf(listener: ListenerPlan, all: readonly ListenerPlan[]): readonly string[] {
  return all
    .filter((other) => listener.isSecure && other.isSecure && other.name !== listener.name)
    .filter(
      ({ hostname }) => coversHost(hostname, listener.hostname) || coversHost(listener.hostname, hostname),
    )
    .map(({ name }) => name);
}

/** Checks all listeners of a Gateway. */
export function planListeners(gateway: Gateway, facts: ListenerFacts): readonly ListenerPlan[] {
  let certificateBytes = 0;
  return gateway.spec.listeners.map((listener, index) => {
    const field = `spec.listeners[${index}]`;
    const isSecure = listener.protocol === 'HTTPS';
    let found = isSecure ? certificateOf(gateway, listener, field, facts) : undefined;
    const isOwnNameOnly = isSecure && found === undefined;
    const bytes = sizeOf(found?.certificate);
    if (certificateBytes + bytes > MAX_CERTIFICATE_BYTES) {
      const why = 'the certificates are too large together: divide the Gateway';
      found = {
        refs: failed('InvalidCertificateRef', `${field}.tls.certificateRefs: ${why}`),
        certificate: undefined,
      };
    } else certificateBytes += bytes;
    const refs = found?.refs ?? RESOLVED;
    const problem = problemOf(gateway, listener, field, facts.isOwnName);
    const { kinds, namespaces } = listener.allowedRoutes;
    return {
      name: listener.name,
      port: listener.port,
      isSecure,
      hostname: listener.hostname.toLowerCase(),
      isOwnNameOnly,
      fromAll: namespaces.from === 'All',
      allowsHttpRoutes: kinds.length === 0 || kinds.some(isHttpRoute),
      accepted: problem ?? succeeded('Accepted'),
      refs: refs.ready ? (kindsProblem(listener, field) ?? refs) : refs,
      unserved: problem?.message ?? unservedOf(refs, isOwnNameOnly, facts.node, field),
      certificate: found?.certificate,
    };
  });
}

function isHttpRoute({ group, kind }: Listener['allowedRoutes']['kinds'][number]): boolean {
  return group === GATEWAY_GROUP && kind === 'HTTPRoute';
}

function kindsProblem({ allowedRoutes: { kinds } }: Listener, field: string): Verdict | undefined {
  const foreign = kinds.findIndex((one) => !isHttpRoute(one));
  if (foreign < 0) return undefined;
  return failed(
    'InvalidRouteKinds',
    `${field}.allowedRoutes.kinds[${foreign}]: only HTTPRoutes are supported`,
  );
}

const RESOLVED: Verdict = succeeded('ResolvedRefs');

function sizeOf(certificate: TableCertificate | undefined): number {
  return certificate === undefined ? 0 : certificate.certificatePem.length + certificate.keyPem.length;
}

function unservedOf(
  refs: Verdict,
  isOwnNameOnly: boolean,
  { hasCertificate, dnsName }: ServingNode,
  field: string,
): string | undefined {
  if (!refs.ready) return refs.message;
  if (!isOwnNameOnly || hasCertificate || dnsName === undefined) return undefined;
  return (
    `${field}: the control server issues no certificates: enable HTTPS there, name one of your own in ` +
    'tls.certificateRefs, or say protocol HTTP and port 80'
  );
}

function problemOf(
  gateway: Gateway,
  listener: Listener,
  field: string,
  isOwnName: (host: string) => boolean,
): Verdict | undefined {
  const { protocol, port } = listener;
  if (protocol !== 'HTTP' && protocol !== 'HTTPS') {
    const why = `HTTP and HTTPS are served, ${protocol} is not`;
    return failed('UnsupportedProtocol', `${field}.protocol: ${why}`);
  }
  const wanted = protocol === 'HTTPS' ? 443 : 80;
  if (port !== wanted)
    return failed('PortUnavailable', `${field}.port: ${protocol} is served only at port ${wanted}`);
  const unsupported =
    unknownOf(listener) ??
    (protocol === 'HTTP' ? plainProblem(gateway, listener) : tlsProblem(gateway, listener, isOwnName));
  return unsupported === undefined ? undefined : failed('UnsupportedValue', `${field}.${unsupported}`);
}

function unknownOf(listener: Listener): string | undefined {
  const unknown = [
    ...Object.keys(listener).filter((key) => !KNOWN.includes(key)),
    ...Object.keys(listener.tls ?? {}).flatMap((key) => (KNOWN_TLS.includes(key) ? [] : [`tls.${key}`])),
  ];
  if (unknown.length > 0) return `${unknown.join(', ')}: not supported`;
  const { from } = listener.allowedRoutes.namespaces;
  return from === 'Same' || from === 'All'
    ? undefined
    : `allowedRoutes.namespaces.from: Same and All are supported, ${from} is not`;
}

function plainProblem(gateway: Gateway, { hostname }: Listener): string | undefined {
  return hostname.startsWith('*') && usesControlCertificate(gateway)
    ? 'hostname: wildcards are not served together with a listener that uses a certificate of the control server'
    : undefined;
}

function tlsProblem(
  gateway: Gateway,
  { hostname, tls }: Listener,
  isOwnName: (host: string) => boolean,
): string | undefined {
  const { mode, certificateRefs } = tls ?? { mode: 'Terminate', certificateRefs: [] };
  if (mode !== 'Terminate') return `tls.mode: Terminate is supported, ${mode} is not`;
  const [first, ...more] = certificateRefs;
  if (more.length > 0) return 'tls.certificateRefs: one is supported: divide the listener by its hostnames';
  if (first !== undefined) return undefined;
  if (namesCertificates(gateway))
    return 'tls.certificateRefs: another listener has its own certificate: add a certificate here, too';
  return hostname === '' || isOwnName(hostname)
    ? undefined
    : `hostname: the control server gives no certificate for ${hostname}: leave the hostname out, or name a ` +
        'certificate in tls.certificateRefs';
}

/** @returns undefined if the listener has no certificate reference */
function certificateOf(
  { metadata }: Gateway,
  { hostname, tls }: Listener,
  field: string,
  { secrets, nowMs }: ListenerFacts,
): { readonly refs: Verdict; readonly certificate: TableCertificate | undefined } | undefined {
  const [ref] = tls?.certificateRefs ?? [];
  if (ref === undefined) return undefined;
  const at = `${field}.tls.certificateRefs[0]`;
  const refused = (reason: string, why: string) => ({
    refs: failed(reason, `${at}: ${why}`),
    certificate: undefined,
  });
  if (ref.group !== '' || ref.kind !== 'Secret')
    return refused('InvalidCertificateRef', `only a Secret is supported, not a ${ref.kind}`);
  if ((ref.namespace ?? metadata.namespace) !== metadata.namespace)
    return refused(
      'RefNotPermitted',
      'the operator does not read Secrets of other namespaces, even with ReferenceGrants: create it in the ' +
        'namespace of the Gateway',
    );
  const found = readCertificate(ref.name, secrets.get(ref.name) ?? 'missing');
  if ('problem' in found) return refused('InvalidCertificateRef', found.problem);
  const hosts = hostname === '' ? [] : [hostname.toLowerCase()];
  const doubts = doubtsOf(found.leaf, hosts, nowMs).map((doubt) => `${at}: Secret "${ref.name}" ${doubt}`);
  const { certificatePem, keyPem } = found;
  return {
    refs: doubts.length === 0 ? RESOLVED : { ...RESOLVED, message: doubts.join('; ') },
    certificate: { hosts, certificatePem, keyPem },
  };
}
