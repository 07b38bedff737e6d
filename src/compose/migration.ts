/** Runs `tailcast migrate check`: reads a cluster or files, and a policy file, and returns the report. */
import { readFileSync } from 'node:fs';
import { parseAllDocuments, type Document } from 'yaml';
import { readCluster, type ClusterObjects } from '../doctor/migration/read-cluster.ts';
import { defaultTagsOf, releaseFindings, readRelease, type HelmRelease } from '../doctor/migration/helm.ts';
import { policyFindings } from '../doctor/migration/grants.ts';
import { contextOf, objectFindings } from '../doctor/migration/objects.ts';
import type { MigrationItem } from '../doctor/migration/verdict.ts';
import { errorReason, errorText, TailcastError } from '../errors.ts';
import { connectCluster } from '../operator/cluster-connection.ts';
import { createKubeClient } from '../operator/kube-client.ts';
import { parseObject, type KubeObject } from '../operator/kube-object.ts';

export interface MigrationOptions {
  /** Kubeconfig file; default: the file that kubectl uses. */
  readonly kubeconfig: string | undefined;
  /** Context of the kubeconfig; default: its current context. */
  readonly context: string | undefined;
  /** Files with objects (YAML or JSON) to read instead of a cluster. If empty, the cluster is read. */
  readonly objects: readonly string[];
  /** Tailnet policy file, or undefined. */
  readonly policy: string | undefined;
  readonly environment: ReadonlyMap<string, string>;
  readonly signal: AbortSignal;
}

/** Result of `tailcast migrate check`. */
export interface MigrationReport {
  readonly items: readonly MigrationItem[];
  /**
   * One sentence for each kind of object that could not be read. If the list is not empty, the report is incomplete.
   */
  readonly unreadable: readonly string[];
}

/**
 * Reads all objects once. Changes nothing.
 *
 * @throws TailcastError `CONFIG_INVALID` if a file cannot be used, `UPSTREAM_UNAVAILABLE` if the API server cannot be reached
 */
export async function checkMigration(options: MigrationOptions): Promise<MigrationReport> {
  const { objects, helmSecrets, unreadable } =
    options.objects.length > 0 ? readFiles(options.objects) : await readFromCluster(options);
  const read = helmSecrets.map(readRelease);
  const releases = read.filter((one): one is HelmRelease => typeof one === 'object');
  const damaged = read.filter((one) => typeof one === 'string');
  const context = contextOf(objects, defaultTagsOf(releases[0]?.values ?? {}));
  const judged = objects
    .map((object) => objectFindings(object, context))
    .filter((item) => item !== undefined);
  const grants = options.policy === undefined ? [] : policyFindings(readText(options.policy));
  return {
    items: [...releases.map(releaseFindings), ...judged, ...grants],
    unreadable: [...unreadable, ...damaged],
  };
}

async function readFromCluster(options: MigrationOptions): Promise<ClusterObjects> {
  const { environment, signal } = options;
  const connection = connectCluster(options, environment);
  try {
    return await readCluster(connection, createKubeClient(connection, signal), signal);
  } finally {
    connection.close();
  }
}

function readFiles(paths: readonly string[]): ClusterObjects {
  const objects = paths.flatMap((path) =>
    parseAllDocuments(readText(path)).flatMap((document) => objectsIn(contentOf(document, path), path)),
  );
  const isSecret = ({ apiVersion, kind }: KubeObject): boolean => apiVersion === 'v1' && kind === 'Secret';
  return {
    objects: objects.filter((object) => !isSecret(object)),
    helmSecrets: objects.filter(isSecret),
    unreadable: [],
  };
}

/**
 * @throws TailcastError `CONFIG_INVALID` for invalid YAML; without this check, the parser would return the valid part
 */
function contentOf(document: Document, path: string): unknown {
  try {
    const [problem] = document.errors;
    if (problem !== undefined) throw problem;
    return document.toJS({ maxAliasCount: 100 });
  } catch (error) {
    throw invalid(path, `not valid YAML: ${errorText(error)}`, error);
  }
}

/**
 * Returns the objects in a document: one object, or the items of a `List` that `kubectl get --output=yaml` has
 * written.
 */
function objectsIn(value: unknown, path: string): readonly KubeObject[] {
  if (value === null || value === undefined) return [];
  if (typeof value === 'object' && 'items' in value && Array.isArray(value.items))
    return value.items.flatMap((item: unknown) => objectsIn(item, path));
  try {
    return [parseObject(value)];
  } catch (error) {
    throw invalid(path, 'a document is not an object with apiVersion, kind and metadata.name', error);
  }
}

function readText(path: string): string {
  try {
    return readFileSync(path, 'utf8');
  } catch (error) {
    throw invalid(path, errorReason(error), error);
  }
}

function invalid(path: string, detail: string, cause: unknown): TailcastError {
  return new TailcastError('CONFIG_INVALID', `${path}: ${detail}`, { cause });
}
