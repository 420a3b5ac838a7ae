// Takes a picture of the page for the documentation: the eight conversations that it proposes,
// asked to go on, which are being answered once more:
//
//   WEFT_CHROMIUM=/usr/bin/chromium node picture.mjs http://127.0.0.1:8080 OUT.png [light|dark] [phone]
import { launch, open, untilAnswered } from "./common.mjs";

const [url, out, colorScheme = "light", device] = process.argv.slice(2);
const phone = { viewport: { width: 390, height: 844 }, isMobile: true, hasTouch: true, deviceScaleFactor: 2 };
const browser = await launch();
const { page } = await open(browser, url, { colorScheme, ...(device === "phone" ? phone : {}) });
await page.getByRole("button", { name: "Start several conversations" }).first().click();
const [, then] = /“(.*)”/.exec(await page.getByRole("dialog").innerText());
await page.getByRole("button", { name: "Start 8" }).click();
await untilAnswered(page, 8);
const askAll = async (text) => {
  await page.keyboard.press("Alt+a");
  await page.keyboard.type(text);
  await page.keyboard.press("Enter");
};
await askAll(then);
await untilAnswered(page, 16);
await askAll("Tell me a story.");
// In the middle of the last answers, so that it is seen how they come together.
await page.waitForFunction(
  () =>
    [...document.querySelectorAll('.message[data-status="running"] .markdown')].filter(
      (answer) => answer.textContent.length > 40,
    ).length >= 6,
);
await page.screenshot({ path: out });
await browser.close();
