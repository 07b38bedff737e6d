/** Reconciles a DNSConfig: the nameserver, its names, and its address. Effects only. */
import { z } from 'zod';
import { errorText, TailcastError } from '../../errors.ts';
import { olderFirst } from '../../kube/object-age.ts';
import { frontSelector } from '../egress-group/member.ts';
import { KubeRefusal } from '../kube-client.ts';
import type { EventTarget } from '../event-recorder.ts';
import { KINDS, knownKindOf, type DesiredObject, type KubeObject } from '../kube-object.ts';
import { report, type Reconciler, type ReconcilerDeps, writeStatus } from '../workload/reconciler.ts';
import { failed, succeeded, type Verdict } from '../workload/status.ts';
import { applyChanged, assertOwned } from '../workload/apply.ts';
import { removeExact, removeOwned } from '../workload/cleanup.ts';
import { listOwn } from '../workload/observe.ts';
import { namesByOwner } from '../workload/names.ts';
import { typeSelector } from '../workload/workload.ts';
import { settleCoreDns } from './coredns.ts';
import {
  isReferenceImage,
  nameserverAccount,
  NAMESERVER,
  nameserverDeployment,
  nameserverService,
  dnsOwner,
  RECORDS,
  recordsConfigMap,
} from './object-specs.ts';
import { nameTable, recordsFile } from './records.ts';
import { parseDnsConfig, type DnsConfig } from './resource.ts';

/**
 * Maximum size of the nameserver's file, in bytes. The API server limits a ConfigMap, including its metadata, to 1 MiB.
 */
const MAX_FILE_BYTES = 1_000_000;

/** Result of one reconciliation. */
interface NameserverOutcome {
  readonly verdict: Verdict;
  /**
   * Address of the nameserver's Service. If empty, the status has no address. If undefined, the status keeps the
   * previous address.
   */
  readonly ip: string | undefined;
}

export function createDnsReconciler(deps: ReconcilerDeps): Reconciler {
  return {
    async reconcile(name) {
      const object = await deps.client.get(KINDS.dnsConfig, { name });
      if (object === undefined) return undefined;
      const dnsConfig = parseDnsConfig(object);
      const { deletionTimestamp } = dnsConfig.metadata;
      if (deps.leaving === true || deletionTimestamp !== undefined) {
        await takeDown(deps, dnsConfig);
        return undefined;
      }
      try {
        await writeDnsStatus(deps, dnsConfig, await deploy(deps, dnsConfig));
      } catch (error) {
        if (deps.signal.aborted || (error instanceof KubeRefusal && error.conflict)) throw error;
        const verdict = failed('NameserverCreationFailed', errorText(error));
        await deps.events.warn(target(dnsConfig), verdict);
        await writeDnsStatus(deps, dnsConfig, { verdict, ip: undefined });
        throw error;
      }
      return undefined;
    },
  };
}

async function deploy(deps: ReconcilerDeps, dnsConfig: DnsConfig): Promise<NameserverOutcome> {
  const { options } = deps;
  const first = await firstOf(deps);
  if (first !== undefined && first !== dnsConfig.metadata.name) {
    const message = `DNSConfig "${first}" exists already, and the operator serves only one: delete one of the two`;
    const verdict = failed('MultipleDNSConfigsPresent', message);
    await deps.events.warn(target(dnsConfig), verdict);
    return { verdict, ip: '' };
  }
  const { image } = dnsConfig.spec.nameserver;
  if (isReferenceImage(image)) {
    const message =
      `spec.nameserver.image: ${image.repo} needs other arguments, so the operator deploys ` +
      'its own nameserver image instead';
    await deps.events.warn(target(dnsConfig), { reason: 'DNSConfigFieldIgnored', message });
  }
  const domain = options.tailnetDomain ?? 'ts.net';
  const text = recordsFile(nameTable(await listServices(deps)), domain);
  if (Buffer.byteLength(text) > MAX_FILE_BYTES) {
    throw new TailcastError('INTERNAL', `the names do not fit a ConfigMap: ${Buffer.byteLength(text)} bytes`);
  }
  await put(deps, dnsConfig, nameserverAccount(dnsConfig, options));
  await put(deps, dnsConfig, recordsConfigMap(dnsConfig, options, text));
  const service = await putService(deps, dnsConfig);
  const deployment = await put(deps, dnsConfig, nameserverDeployment(dnsConfig, options));
  const ip = addressOf(service);
  const problem = await settleCoreDns(deps.client, dnsConfig, { domain, address: ip });
  if (problem !== undefined) {
    const verdict = failed('NameserverCreationFailed', problem);
    await deps.events.warn(target(dnsConfig), verdict);
    return { verdict, ip };
  }
  return { verdict: verdictOf(deployment), ip };
}

/**
 * Returns the name of the oldest DNSConfig. The operator serves only the oldest, so that a new DNSConfig cannot replace
 * it.
 */
async function firstOf({ client }: ReconcilerDeps): Promise<string | undefined> {
  const { items } = await client.list(KINDS.dnsConfig, { metadataOnly: true });
  const there = items.filter(({ metadata }) => metadata.deletionTimestamp === undefined);
  return there.toSorted(olderFirst)[0]?.metadata.name;
}

/** Lists the objects that the operator has created for Services. */
async function listServices(deps: ReconcilerDeps): Promise<Parameters<typeof nameTable>[0]> {
  const own = typeSelector('svc');
  const [statefulSets, secrets, slices, fronts, owned] = await Promise.all([
    listOwn(deps, KINDS.statefulSet, own),
    listOwn(deps, KINDS.secret, own),
    listOwn(deps, KINDS.endpointSlice, own),
    listOwn(deps, KINDS.service, `${own},${frontSelector()}`),
    namesByOwner(deps),
  ]);
  return {
    statefulSets,
    secrets: new Map(secrets.map((secret) => [secret.metadata.name, secret])),
    slices,
    fronts,
    owned,
  };
}

/**
 * Applies the nameserver's Service. The cluster IP of a Service is immutable. If the address must change, the operator
 * therefore deletes the Service first.
 */
async function putService(deps: ReconcilerDeps, dnsConfig: DnsConfig): Promise<KubeObject> {
  const wanted = dnsConfig.spec.nameserver.service.clusterIP;
  const desired = nameserverService(dnsConfig, deps.options);
  const { namespace, name } = desired.metadata;
  const existing = await deps.client.get(KINDS.service, { namespace, name });
  if (existing !== undefined && wanted !== '' && addressOf(existing) !== wanted) {
    assertOwned(dnsOwner(dnsConfig), existing);
    await removeExact(deps, existing);
  }
  return put(deps, dnsConfig, desired);
}

/** Applies an object, unless the object in the cluster is already equal. */
async function put(
  { client }: ReconcilerDeps,
  dnsConfig: DnsConfig,
  desired: DesiredObject,
): Promise<KubeObject> {
  const { namespace, name } = desired.metadata;
  const existing = await client.get(knownKindOf(desired), { namespace, name });
  return applyChanged(client, desired, existing, dnsOwner(dnsConfig));
}

/**
 * Removes the nameserver. If the DNSConfig is being deleted, the garbage collector deletes the nameserver's objects.
 */
async function takeDown(deps: ReconcilerDeps, dnsConfig: DnsConfig): Promise<void> {
  const { client, options } = deps;
  const { metadata } = dnsConfig;
  await settleCoreDns(client, dnsConfig, undefined);
  if (metadata.deletionTimestamp !== undefined) return;
  const { namespace } = options;
  for (const kind of [KINDS.deployment, KINDS.service, KINDS.configMap, KINDS.serviceAccount]) {
    const name = kind === KINDS.configMap ? RECORDS : NAMESERVER;
    await removeOwned(deps, dnsOwner(dnsConfig), await client.get(kind, { namespace, name }));
  }
  await writeStatus(deps, KINDS.dnsConfig, dnsConfig, { conditions: [], nameserver: null });
}

const deploymentSchema = z.object({
  metadata: z.object({ generation: z.number().default(0) }),
  spec: z.object({ replicas: z.number().default(1) }),
  status: z
    .object({ observedGeneration: z.number().default(0), readyReplicas: z.number().default(0) })
    .prefault({}),
});

function verdictOf(deployment: KubeObject): Verdict {
  const { metadata, spec, status } = deploymentSchema.parse(deployment);
  const ready = status.observedGeneration < metadata.generation ? 0 : status.readyReplicas;
  const message = `${ready}/${spec.replicas} pods of the nameserver are ready`;
  return ready > 0 ? succeeded('NameserverCreated', message) : failed('NameserverCreating', message);
}

const serviceSchema = z.object({ spec: z.object({ clusterIP: z.string().default('') }) });

function addressOf(service: KubeObject): string {
  return serviceSchema.parse(service).spec.clusterIP;
}

function target({ metadata }: DnsConfig): EventTarget {
  return { kind: KINDS.dnsConfig, metadata };
}

function writeDnsStatus(
  deps: ReconcilerDeps,
  dnsConfig: DnsConfig,
  { verdict, ip }: NameserverOutcome,
): Promise<boolean> {
  const nameserver = ip === '' ? null : ip && { ip };
  return report(deps, KINDS.dnsConfig, dnsConfig, { NameserverReady: verdict }, { nameserver });
}
