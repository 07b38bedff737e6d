/** Turns one DNS query into one response (RFC 1035, 2308, 6891). The query is not trusted. Pure. */
import {
  AUTHORITATIVE_ANSWER,
  decode,
  encode,
  RECURSION_DESIRED,
  TRUNCATED_RESPONSE,
  type Answer,
  type OptAnswer,
  type Packet,
  type Question,
} from 'dns-packet';
import { MAX_NAME_LENGTH, type NameAddresses, type NameRecords } from './records.ts';

/** Maximum size of a query, in bytes. Queries for valid names are smaller. */
export const MAX_QUERY_BYTES = 4096;
const HEADER_BYTES = 12;
/**
 * Maximum size of a UDP response, in bytes. A response of this size fits into one packet on most networks (DNS flag day
 * 2020). The nameserver announces this size in EDNS.
 */
const UDP_BYTES = 1232;
/** Maximum size of a UDP response if the query has no EDNS, in bytes. */
const PLAIN_UDP_BYTES = 512;
const TCP_BYTES = 65_535;
/** Time to live of records. Resolvers must not cache records, because pods change often. */
const TTL = 0;

const CODES = { NOERROR: 0, FORMERR: 1, SERVFAIL: 2, NXDOMAIN: 3, NOTIMP: 4, REFUSED: 5 } as const;
export type ResponseCode = keyof typeof CODES;

/** Response to one DNS query. */
export interface QueryAnswer {
  readonly message: Uint8Array;
  readonly code: ResponseCode | 'BADVERS';
}

/**
 * @param records undefined until records are loaded; the response is then SERVFAIL, so that the resolver tries another
 * server
 * @returns undefined if the message must not be answered, because it is invalid or is itself a response
 */
export function answerQuery(
  message: Uint8Array,
  records: NameRecords | undefined,
  transport: 'udp' | 'tcp',
): QueryAnswer | undefined {
  const head = readHead(message);
  if (head === undefined || head.isAnswer) return undefined;
  if (head.opcode !== 0) return bare(head, 'NOTIMP');
  const query = readQuery(message, head);
  if (query === undefined) return bare(head, 'FORMERR');
  return answerQuestion(head, query, records, transport === 'tcp' ? TCP_BYTES : udpLimit(query.opt));
}

function answerQuestion(
  { id, recursionDesired }: Head,
  { question, opt }: Query,
  records: NameRecords | undefined,
  limit: number,
): QueryAnswer {
  const isOdd = opt !== undefined && opt.ednsVersion !== 0;
  const additionals = opt === undefined ? [] : [optAnswer(isOdd ? 1 : 0)];
  const base: Packet = { type: 'response', id, questions: [question], additionals };
  if (isOdd) return { message: encode(base), code: 'BADVERS' };
  const { code, answers = [], authorities = [] } = lookUp(question, records);
  const isOurs = code === 'NOERROR' || code === 'NXDOMAIN';
  const flags =
    (recursionDesired ? RECURSION_DESIRED : 0) | (isOurs ? AUTHORITATIVE_ANSWER : 0) | CODES[code];
  const whole = encode({ ...base, flags, answers: [...answers], authorities: [...authorities] });
  if (whole.length <= limit) return { message: whole, code };
  // If the response is truncated, the resolver repeats the query over TCP.
  return { message: encode({ ...base, flags: flags | TRUNCATED_RESPONSE }), code };
}

interface Head {
  readonly id: number;
  readonly isAnswer: boolean;
  readonly opcode: number;
  readonly recursionDesired: boolean;
  /** Number of records in each section, in the order of RFC 1035. */
  readonly counts: readonly number[];
}

function readHead(message: Uint8Array): Head | undefined {
  if (message.length < HEADER_BYTES) return undefined;
  const view = new DataView(message.buffer, message.byteOffset, message.byteLength);
  const flags = view.getUint16(2);
  return {
    id: view.getUint16(0),
    isAnswer: (flags & 0x8000) !== 0,
    opcode: (flags >> 11) & 0xf,
    recursionDesired: (flags & 0x0100) !== 0,
    counts: [4, 6, 8, 10].map((at) => view.getUint16(at)),
  };
}

interface Query {
  readonly question: Question;
  readonly opt: OptAnswer | undefined;
}

/** Parses a query. Returns undefined for an unsupported query. */
function readQuery(message: Uint8Array, { counts }: Head): Query | undefined {
  const [questions = 0, answers = 0, authorities = 0, additionals = 0] = counts;
  // A supported query contains one question, and in the additional section at most EDNS and a signature. Other
  // sections must be empty.
  if (message.length > MAX_QUERY_BYTES || questions !== 1 || answers + authorities > 0 || additionals > 2) {
    return undefined;
  }
  try {
    const packet = decode(Buffer.from(message.buffer, message.byteOffset, message.byteLength));
    const [question] = packet.questions ?? [];
    const opts = (packet.additionals ?? []).filter((one) => one.type === 'OPT');
    if (question === undefined || opts.length > 1 || !isPlain(message, question)) return undefined;
    return { question, opt: opts[0] };
  } catch {
    // For invalid input, the DNS library throws errors of many types, so every error counts as invalid input.
    return undefined;
  }
}

/**
 * True if the name stays the same when it is decoded and encoded again. Names with compression pointers change, and so
 * do names with dots or special bytes in a label.
 */
function isPlain(message: Uint8Array, { name }: Question): boolean {
  const written = encode({ questions: [{ name, type: 'A' }] }).subarray(HEADER_BYTES, -4);
  return Buffer.compare(written, message.subarray(HEADER_BYTES, HEADER_BYTES + written.length)) === 0;
}

function udpLimit(opt: OptAnswer | undefined): number {
  return opt === undefined
    ? PLAIN_UDP_BYTES
    : Math.min(UDP_BYTES, Math.max(PLAIN_UDP_BYTES, opt.udpPayloadSize));
}

function optAnswer(extendedRcode: number): OptAnswer {
  return {
    type: 'OPT',
    name: '.',
    udpPayloadSize: UDP_BYTES,
    extendedRcode,
    ednsVersion: 0,
    flags: 0,
    flag_do: false,
    options: [],
  };
}

interface Found {
  readonly code: ResponseCode;
  readonly answers?: readonly Answer[];
  readonly authorities?: readonly Answer[];
}

function lookUp(question: Question, records: NameRecords | undefined): Found {
  if (records === undefined) return { code: 'SERVFAIL' };
  if (question.class !== 'IN') return { code: 'REFUSED' };
  const name = question.name.toLowerCase();
  const domain = records.domainOf(name);
  if (domain === undefined) return { code: 'REFUSED' };
  const type: string = question.type;
  if (['AXFR', 'IXFR'].includes(type)) return { code: 'REFUSED' };
  const soa = startOf(domain);
  if (type === 'SOA' && name === domain)
    return { code: 'NOERROR', answers: [{ ...soa, name: question.name }] };
  const addresses = records.find(name);
  if (addresses === undefined) {
    return { code: records.hasBelow(name) ? 'NOERROR' : 'NXDOMAIN', authorities: [soa] };
  }
  const answers = answersOf(question, addresses);
  return { code: 'NOERROR', answers, authorities: answers.length === 0 ? [soa] : [] };
}

/**
 * Returns the records of a response. Their names are written exactly as in the query, because some resolvers reject a
 * response in which upper and lower case differ from the query.
 */
function answersOf({ name, type }: Question, { ip4, ip6 }: NameAddresses): readonly Answer[] {
  const asked: string = type;
  const of = (wanted: 'A' | 'AAAA', addresses: readonly string[]): readonly Answer[] =>
    asked === wanted || asked === 'ANY'
      ? addresses.map((data) => ({ type: wanted, class: 'IN' as const, name, ttl: TTL, data }))
      : [];
  return [...of('A', ip4), ...of('AAAA', ip6)];
}

/** Returns the SOA record of a domain. Resolvers accept a negative response only with an SOA record. */
function startOf(domain: string): Answer & { readonly type: 'SOA' } {
  const inDomain = (label: string): string => {
    const name = `${label}.${domain}`;
    return name.length <= MAX_NAME_LENGTH ? name : domain;
  };
  return {
    type: 'SOA',
    class: 'IN',
    name: domain,
    ttl: TTL,
    data: {
      mname: inDomain('nameserver'),
      rname: inDomain('hostmaster'),
      serial: 1,
      refresh: 3600,
      retry: 600,
      expire: 86_400,
      minimum: TTL,
    },
  };
}

/** Returns an error response that contains only a header, for an unsupported opcode or an invalid query. */
function bare({ id, opcode, recursionDesired }: Head, code: ResponseCode): QueryAnswer {
  const flags = (opcode << 11) | (recursionDesired ? RECURSION_DESIRED : 0) | CODES[code];
  return { message: encode({ type: 'response', id, flags }), code };
}
