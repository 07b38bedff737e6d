import { z } from 'zod';
import { MARK_KINDS, PLAY_INDEX_VERSION, type PlayIndex } from '../../screen/play-index.ts';

/** Schema of a play index in files and responses. */
export const playIndexSchema = z.object({
  version: z.literal(PLAY_INDEX_VERSION),
  seconds: z.number(),
  characters: z.number(),
  activity: z.array(z.number()),
  frames: z.array(z.object({ at: z.number(), offset: z.number(), columns: z.number(), rows: z.number() })),
  marks: z.array(
    z.object({
      at: z.number(),
      kind: z.enum(MARK_KINDS),
      text: z.string(),
      seconds: z.number().exactOptional(),
      exit: z.number().exactOptional(),
    }),
  ),
  markCount: z.number(),
  badLines: z.number(),
  isCut: z.boolean(),
  isBinary: z.boolean(),
  thumbnail: z.array(z.string()),
  hidden: z.number(),
  tinySize: z.string().exactOptional(),
  stoppedAt: z.number().exactOptional(),
}) satisfies z.ZodType<PlayIndex>;
