/** Error responses of a recorder. */
import { isRecord } from '../wire/is-record.ts';

/** Error response of a recorder. */
export class ArchiveError extends Error {
  override readonly name = 'ArchiveError';
  /** HTTP status. */
  readonly status: number;
  /** URL of the request. */
  readonly url: string;
  /** Login of the viewer, or name of the viewer's tailnet node, if the response contains it. */
  readonly viewer: string | undefined;
  /** True if the response is from the gateway, and not from the recorder. */
  readonly isOfGateway: boolean;

  constructor(
    { status, url }: Pick<Response, 'status' | 'url'>,
    message: string,
    { viewer, isOfGateway = false }: { readonly viewer?: string; readonly isOfGateway?: boolean } = {},
  ) {
    super(message);
    this.isOfGateway = isOfGateway;
    this.status = status;
    this.url = url;
    this.viewer = viewer;
  }
}

/** Converts an error response to an Error with the recorder's message. */
export async function failureOf(response: Response): Promise<Error> {
  const { status } = response;
  const body: unknown = await response.json().catch(() => undefined);
  if (status === 404)
    return new ArchiveError(
      response,
      'There is no such recording, or you may not see it. Retention may have removed it.',
    );
  const message = isRecord(body) && 'message' in body ? String(body['message']) : response.statusText;
  const fields = isRecord(body) ? body : {};
  const { viewer } = fields;
  return new ArchiveError(
    response,
    `${message.charAt(0).toUpperCase()}${message.slice(1)} (status ${status})`,
    {
      ...(typeof viewer === 'string' ? { viewer } : {}),
      // only a gateway sends a Kubernetes `Status`; a recorder sends its own format
      isOfGateway: fields['kind'] === 'Status',
    },
  );
}
