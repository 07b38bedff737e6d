/**
 * Parses and encodes the exit status of exec and attach, which is the content of the error stream. In version 4 and
 * later of the channel protocol, the content is a `metav1.Status`; in earlier versions, it is plain text. Sources:
 * k8s.io/client-go `tools/remotecommand/v1.go` … `v4.go`, k8s.io/kubelet `cri/streaming/remotecommand/exec.go`.
 */
import { isJsonArray, isJsonObject, jsonField, parseJsonObject, type JsonObject } from '../json-value.ts';
import { GrowingBytes } from '../growing-bytes.ts';
import { WireError } from '../wire-error.ts';
import type { ChannelVersion } from './channel.ts';

export type ExitStatus =
  | { readonly kind: 'success' }
  /** The command exited with a code other than 0. */
  | { readonly kind: 'exit'; readonly code: number; readonly message: string }
  /** The command did not run, or its result is unknown. `reason` is a `metav1.StatusReason`. */
  | { readonly kind: 'failure'; readonly message: string; readonly reason?: string };

export const MAX_STATUS_BYTES = 64 * 1024;

const STATUS_SINCE = 4;
const NON_ZERO_EXIT = 'NonZeroExitCode';
const EXIT_CAUSE = 'ExitCode';

/**
 * @param bytes the complete error stream. Before v4, an empty stream means success. In v4 and later, an empty stream
 * means that the connection ended without a result. The function then returns a `failure` with reason `StatusMissing`.
 * @throws WireError `malformed` for a v4 body that is not a Status, `limit` over 64 KiB.
 */
export function parseExitStatus(bytes: Uint8Array, protocolVersion: ChannelVersion): ExitStatus {
  if (bytes.length > MAX_STATUS_BYTES) throw new WireError('limit', 'the exit status is too long');
  const text = new TextDecoder().decode(bytes);
  if (protocolVersion < STATUS_SINCE) {
    return text === '' ? { kind: 'success' } : parsePlainText(text);
  }
  if (text === '') return { kind: 'failure', message: 'no status was sent', reason: 'StatusMissing' };
  const status = parseJsonObject(text);
  const outcome = jsonField(status, 'status');
  if (outcome === 'Success') return { kind: 'success' };
  if (outcome === 'Failure') return parseFailure(status);
  throw new WireError('malformed', 'the status is neither Success nor Failure');
}

/** Before v4, the kubelet writes the exit code at the end of the text. */
function parsePlainText(message: string): ExitStatus {
  const [, code] = PLAIN_EXIT.exec(message) ?? [];
  return code === undefined ? { kind: 'failure', message } : { kind: 'exit', code: Number(code), message };
}

const PLAIN_EXIT = /^command terminated with non-zero exit code: .*exit (?:status|code) (-?\d{1,10})$/s;

function parseFailure(status: JsonObject): ExitStatus {
  const message = stringField(status, 'message') ?? '';
  const reason = stringField(status, 'reason');
  if (reason === NON_ZERO_EXIT) return { kind: 'exit', code: exitCode(status), message };
  return reason === undefined ? { kind: 'failure', message } : { kind: 'failure', message, reason };
}

/**
 * Returns the exit code from the cause with the reason `ExitCode`. Exit codes of Windows containers have 32
 * bits.
 */
function exitCode(status: JsonObject): number {
  const details = jsonField(status, 'details');
  const causes = isJsonObject(details) ? jsonField(details, 'causes') : undefined;
  for (const cause of isJsonArray(causes) ? causes : []) {
    if (!isJsonObject(cause) || stringField(cause, 'reason') !== EXIT_CAUSE) continue;
    const code = stringField(cause, 'message') ?? '';
    if (!/^-?\d{1,10}$/.test(code)) throw new WireError('malformed', 'the exit code is not a number');
    return Number(code);
  }
  throw new WireError('malformed', 'the status names no exit code');
}

function stringField(object: JsonObject, key: string): string | undefined {
  const value = jsonField(object, key);
  if (value !== undefined && typeof value !== 'string')
    throw new WireError('malformed', `${key} is not text`);
  return value;
}

/**
 * Maximum number of characters of a message that {@link translateStatus} copies, so that the new status does not
 * exceed the size limit.
 */
const MAX_MESSAGE_CHARACTERS = 4096;

/** Largest exit code that client-go reads from a status. */
const MAX_CLIENT_EXIT_CODE = 255;

/**
 * Translates a status of the kubelet, received over SPDY, into a status for a WebSocket client with version 5 of the
 * channel protocol. The API server also translates: it parses the status with client-go and writes its own status.
 * Source: `k8s.io/apiserver/pkg/util/proxy/streamtranslator.go`, `client-go/tools/remotecommand/v4.go`.
 *
 * @param bytes the complete error stream, not empty
 */
export function translateStatus(bytes: Uint8Array): Uint8Array {
  return new TextEncoder().encode(JSON.stringify(translatedStatus(bytes)));
}

function translatedStatus(bytes: Uint8Array): object {
  let status: ExitStatus;
  try {
    status = parseExitStatus(bytes, STATUS_SINCE);
  } catch (error) {
    if (!(error instanceof WireError)) throw error;
    return internalError(`error stream protocol error: ${error.message}`);
  }
  if (status.kind === 'failure') return internalError(status.message);
  if (status.kind === 'success') return statusObject(status);
  const { code } = status;
  if (code < 0 || code > MAX_CLIENT_EXIT_CODE)
    return internalError(`error stream protocol error: invalid exit code value "${code}"`);
  const message = `command terminated with non-zero exit code: command terminated with exit code ${code}`;
  return statusObject({ kind: 'exit', code, message });
}

/** Returns a Status like `apierrors.NewInternalError` of k8s.io/apimachinery. */
function internalError(detail: string): object {
  const message = detail.slice(0, MAX_MESSAGE_CHARACTERS);
  return {
    metadata: {},
    status: 'Failure',
    message: `Internal error occurred: ${message}`,
    reason: 'InternalError',
    details: { causes: [{ message }] },
    code: 500,
  };
}

/** Input of `encodeStatus`; a failure may also have the HTTP code of its reason. */
export type StatusToSend =
  | { readonly kind: 'success' }
  | { readonly kind: 'exit'; readonly code: number; readonly message?: string }
  | {
      readonly kind: 'failure';
      readonly message: string;
      readonly reason?: string;
      readonly httpStatus?: number;
    };

/** Returns the complete content of the error stream for a status. Empty for success before v4. */
export function encodeStatus(status: StatusToSend, protocolVersion: ChannelVersion): Uint8Array {
  const text = protocolVersion < STATUS_SINCE ? plainText(status) : JSON.stringify(statusObject(status));
  return new TextEncoder().encode(text);
}

function plainText(status: StatusToSend): string {
  switch (status.kind) {
    case 'success':
      return '';
    case 'exit':
      return status.message ?? exitMessage(status.code);
    case 'failure':
      return status.message;
  }
}

function statusObject(status: StatusToSend): object {
  switch (status.kind) {
    case 'success':
      return { metadata: {}, status: 'Success' };
    case 'exit':
      return {
        metadata: {},
        status: 'Failure',
        message: status.message ?? exitMessage(status.code),
        reason: NON_ZERO_EXIT,
        details: { causes: [{ reason: EXIT_CAUSE, message: String(status.code) }] },
      };
    case 'failure': {
      const { message, reason = 'InternalError', httpStatus = 500 } = status;
      return { metadata: {}, status: 'Failure', message, reason, code: httpStatus };
    }
  }
}

function exitMessage(code: number): string {
  return `command terminated with non-zero exit code: exit status ${code}`;
}

const NO_BYTES = new Uint8Array(0);
/**
 * Maximum number of times that a collector parses its bytes. Over WebSocket, a collector parses its bytes after each
 * message. A server sends the status in one message or in a few.
 */
const MAX_PARSES = 64;

/** Collects the bytes of the error stream and parses the exit status. */
export function createStatusCollector(version: ChannelVersion) {
  let kept: GrowingBytes | undefined;
  let parses = 0;
  const all = (): Uint8Array => kept?.all ?? NO_BYTES;
  return {
    /** True if the error stream has bytes. */
    get begun(): boolean {
      return kept !== undefined;
    },
    /**
     * Received bytes of the error stream, valid until the next `push`. The collector keeps at most one byte more than
     * the maximum size of a status, so that the parser detects a larger status.
     */
    get bytes(): Uint8Array {
      return all();
    },
    push(bytes: Uint8Array): void {
      if (bytes.length === 0) return;
      kept ??= new GrowingBytes();
      kept.bytes(bytes.subarray(0, MAX_STATUS_BYTES + 1 - kept.length));
    },
    /**
     * Parses the complete stream. Returns undefined if the status is malformed, because a malformed status must not
     * affect the recording. Also returns undefined after {@link MAX_PARSES} calls.
     */
    finish(): ExitStatus | undefined {
      parses += 1;
      if (parses > MAX_PARSES) return undefined;
      try {
        return parseExitStatus(all(), version);
      } catch {
        return undefined;
      }
    },
  };
}
