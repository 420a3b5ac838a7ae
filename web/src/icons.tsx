// The page's few icons, drawn in the text colour.
const paths = {
  plus: "M8 3v10M3 8h10",
  send: "M8 13V3.5M3.5 8 8 3.5 12.5 8",
  stop: "M4.5 4.5h7v7h-7z",
  fork: "M4.5 2.5v11M4.5 8.5c0-2 7-1 7-4M11.5 4.5v-2M2.8 13.5h3.4",
  retry: "M12.8 8a4.8 4.8 0 1 1-1.5-3.5M12.9 2.4v2.8h-2.8",
  edit: "M3 13l.6-2.7 7.3-7.3 2.1 2.1-7.3 7.3zM9.6 4.3l2.1 2.1",
  copy: "M6 6h7v7H6zM10 6V3H3v7h3",
  more: "M3.5 8h.01M8 8h.01M12.5 8h.01",
  close: "M4 4l8 8M12 4l-8 8",
  gauge: "M2.5 11.5a5.5 5.5 0 1 1 11 0M8 11.5l2.7-4",
  settings: "M2.5 5h6M11.5 5h2M2.5 11h2M7.5 11h6M10 3.3v3.4M6 9.3v3.4",
  sun: "M8 5.2a2.8 2.8 0 1 1 0 5.6 2.8 2.8 0 0 1 0-5.6M8 1.5v1M8 13.5v1M1.5 8h1M13.5 8h1M3.4 3.4l.7.7M11.9 11.9l.7.7M12.6 3.4l-.7.7M4.1 11.9l-.7.7",
  moon: "M12.8 9.6A5.3 5.3 0 0 1 6.4 3.2a5.3 5.3 0 1 0 6.4 6.4z",
  system: "M2.5 3.5h11v7h-11zM6 13h4",
  rows: "M3 4.5h10M3 8h10M3 11.5h6",
  tool: "M9.8 2.6a3.4 3.4 0 0 0-4 4.5L2.6 10.3a1.5 1.5 0 1 0 2.9 2.9L8.9 10a3.4 3.4 0 0 0 4.5-4l-2 2-2.4-.8-.8-2.4z",
  focus: "M6 2.5H2.5V6M10 2.5h3.5V6M6 13.5H2.5V10M10 13.5h3.5V10",
  board: "M2.5 2.5h4.6v4.6H2.5zM8.9 2.5h4.6v4.6H8.9zM2.5 8.9h4.6v4.6H2.5zM8.9 8.9h4.6v4.6H8.9z",
  attach: "M12.6 7.4 8 12a2.9 2.9 0 0 1-4.1-4.1l5-5a2 2 0 0 1 2.8 2.8l-5 5a1 1 0 0 1-1.4-1.4l4.4-4.4",
  find: "M7 2.8a4.2 4.2 0 1 1 0 8.4 4.2 4.2 0 0 1 0-8.4M10.2 10.2 13.5 13.5",
  left: "M10 4 6 8l4 4",
  right: "M6 4l4 4-4 4",
  goOn: "M4 3.5 11 8l-7 4.5z",
  down: "M4 6.5 8 10.5 12 6.5",
  help: "M6 6.2a2 2 0 1 1 2.9 1.8c-.6.3-.9.7-.9 1.4M8 11.8h.01",
} as const;

export function Icon({ name }: { name: keyof typeof paths }) {
  return (
    <svg class="icon" viewBox="0 0 16 16" aria-hidden="true">
      <path d={paths[name]} />
    </svg>
  );
}
