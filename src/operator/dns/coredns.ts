/** Adds the stub zone of a DNSConfig to CoreDNS's ConfigMap, or removes the zone. Effects. */
import type { KubeClient } from '../kube-client.ts';
import { FINALIZER, KINDS, type KubeObject } from '../kube-object.ts';
import { withoutStub, withStub } from './corefile.ts';
import { DNS_ANNOTATIONS, type DnsConfig } from './resource.ts';

type Client = Pick<KubeClient, 'get' | 'patch'>;

const KEY = 'Corefile';

/**
 * Configures CoreDNS to forward tailnet names to the nameserver, or removes this configuration.
 *
 * @param stub undefined to remove the configuration
 * @returns the reason if CoreDNS cannot be configured; otherwise undefined
 */
export async function settleCoreDns(
  client: Client,
  { metadata }: DnsConfig,
  stub: { readonly domain: string; readonly address: string } | undefined,
): Promise<string | undefined> {
  const { annotations, finalizers, name, resourceVersion } = metadata;
  const wanted = stub === undefined ? '' : (annotations[DNS_ANNOTATIONS.coreDns] ?? '');
  const written = annotations[DNS_ANNOTATIONS.written] ?? '';
  if (written !== '' && written !== wanted) await rewrite(client, written, withoutStub);
  // The name of the ConfigMap is stored in the DNSConfig before the change, so that the operator can undo the change
  // after a crash.
  if (written !== wanted) {
    const others = finalizers.filter((one) => one !== FINALIZER);
    const body = {
      metadata: {
        resourceVersion,
        annotations: { [DNS_ANNOTATIONS.written]: wanted === '' ? null : wanted },
        finalizers: wanted === '' ? others : [...others, FINALIZER],
      },
    };
    await client.patch(KINDS.dnsConfig, { name }, { kind: 'merge', body });
  }
  if (wanted === '' || stub === undefined) return undefined;
  const { domain, address } = stub;
  if (address === '') return `${DNS_ANNOTATIONS.coreDns}: the nameserver has no address yet`;
  return rewrite(client, wanted, (text) => withStub(text, domain, address), domain);
}

/** @param change returns the new Corefile, or undefined if the user's Corefile has a block for `domain` already */
async function rewrite(
  client: Client,
  place: string,
  change: (corefile: string) => string | undefined,
  domain = '',
): Promise<string | undefined> {
  const [namespace = '', name = '', ...more] = place.split('/');
  if (namespace === '' || name === '' || more.length > 0) {
    return `${DNS_ANNOTATIONS.coreDns}: ${JSON.stringify(place)} is not <namespace>/<name> of a ConfigMap`;
  }
  const object = await client.get(KINDS.configMap, { namespace, name });
  const corefile = object === undefined ? undefined : corefileOf(object);
  if (object === undefined || corefile === undefined) {
    return `${DNS_ANNOTATIONS.coreDns}: ConfigMap ${place} does not exist or has no ${KEY}`;
  }
  const next = change(corefile);
  if (next === undefined) {
    return (
      `${DNS_ANNOTATIONS.coreDns}: the ${KEY} in ${place} has a block for ${domain} already: remove the ` +
      'block, or the annotation'
    );
  }
  if (next === corefile) return undefined;
  const { resourceVersion } = object.metadata;
  const body = { metadata: { resourceVersion }, data: { [KEY]: next } };
  await client.patch(KINDS.configMap, { namespace, name }, { kind: 'merge', body });
  return undefined;
}

function corefileOf(object: KubeObject): string | undefined {
  const data: unknown = object['data'];
  if (typeof data !== 'object' || data === null || !(KEY in data)) return undefined;
  return typeof data[KEY] === 'string' ? data[KEY] : undefined;
}
