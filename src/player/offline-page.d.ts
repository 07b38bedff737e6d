/** The page of an exported recording, with its script and its style, as text (see `vite.config.ts`). */
declare module 'virtual:offline-page' {
  const page: string;
  export default page;
}
